//! `log`: lines into the operator's log, under the quota of the call.

use crate::bindings::cofferdam::plugin::log::{Host, Level};
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("write", |mut guest, (level, message)| guest.data_mut().write(level, message))
}

impl Host for GuestState {
    fn write(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.enter_host()?;
        self.log.write(level, message.as_bytes());
        Ok(())
    }
}
