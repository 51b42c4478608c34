//! `config`: the plugin's settings as the operator wrote them.

use crate::bindings::cofferdam::plugin::config::Host;
use crate::guest::GuestState;

impl Host for GuestState {
    fn settings(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.enter_host()?;
        Ok(self.plugin.grant.settings.clone())
    }
}
