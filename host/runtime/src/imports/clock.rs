//! `clock`: the request's time plus the time since, rounded down.

use crate::bindings::cofferdam::plugin::clock::Host;
use crate::guest::GuestState;

impl Host for GuestState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        self.enter_host()?;
        Ok(self.clock.now_ms())
    }
}
