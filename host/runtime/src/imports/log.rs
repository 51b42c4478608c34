//! `log`: lines into the operator's log, under the quota of the call.

use crate::bindings::cofferdam::plugin::log::{Host, Level};
use crate::guest::GuestState;

impl Host for GuestState {
    fn write(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.enter_host()?;
        self.log.write(level, message.as_bytes());
        Ok(())
    }
}
