//! `clock`: the request's time plus the time since, rounded down.

use crate::bindings::cofferdam::plugin::clock::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("now-ms", |mut guest, (): ()| Ok((guest.data_mut().now_ms()?,)))
}

impl Host for GuestState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        self.enter_host()?;
        Ok(self.clock.now_ms())
    }
}
