//! `catalog`: the models that this host serves.

use crate::bindings::cofferdam::plugin::catalog::Host;
use crate::guest::GuestState;

impl Host for GuestState {
    fn models(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.enter_host()?;
        Ok(self.services.catalog.as_ref().map_or_else(|| b"[]".to_vec(), |catalog| catalog.models()))
    }
}
