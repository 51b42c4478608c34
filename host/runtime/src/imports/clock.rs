//! `clock`: coarse time that moves on from the request's own.

use crate::bindings::cofferdam::plugin::clock::Host;
use crate::instance::GuestState;

impl Host for GuestState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        self.enter_host()?;
        Ok(self.clock.now_ms())
    }
}
