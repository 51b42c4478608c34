//! `catalog`: the models that this host serves.

use crate::bindings::cofferdam::plugin::catalog::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("models", |mut guest, (): ()| Ok((guest.data_mut().models()?,)))
}

impl Host for GuestState {
    fn models(&mut self) -> wasmtime::Result<Vec<u8>> {
        let asked = self.enter_taped("catalog.models", &())?;
        if let Some(models) = asked.recorded()? {
            return Ok(models);
        }
        let models =
            self.services.catalog.as_ref().map_or_else(|| b"[]".to_vec(), |catalog| catalog.models());
        asked.note(&models);
        Ok(models)
    }
}
