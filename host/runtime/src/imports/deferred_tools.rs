//! `deferred-tools`: functions whose loading the client deferred, for the tool that searches them.

use crate::bindings::cofferdam::plugin::deferred_tools::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("all", |mut guest, (): ()| Ok((guest.data_mut().all()?,)))?;
    interface.func_wrap("load", |mut guest, (names,)| guest.data_mut().load(names))
}

impl Host for GuestState {
    fn all(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.enter_host()?;
        Ok(self.services.deferred.as_ref().map_or_else(|| b"[]".to_vec(), |deferred| deferred.all()))
    }

    fn load(&mut self, names: Vec<String>) -> wasmtime::Result<()> {
        self.enter_host()?;
        if let Some(deferred) = &self.services.deferred {
            deferred.load(names);
        }
        Ok(())
    }
}
