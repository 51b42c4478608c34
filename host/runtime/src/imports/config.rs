//! `config`: the plugin's settings as the operator wrote them.

use crate::bindings::cofferdam::plugin::config::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("settings", |mut guest, (): ()| Ok((guest.data_mut().settings()?,)))
}

impl Host for GuestState {
    fn settings(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.enter_host()?;
        Ok(self.plugin.grant.settings.clone())
    }
}
