//! `random`: bytes from the system's generator.

use crate::bindings::cofferdam::plugin::random::Host;
use crate::guest::GuestState;
use crate::imports::{Interface, LimitExceeded};

/// Length limit of one call in bytes, as in `wit/random.wit`. More is a trap.
const BYTES_MAX: u32 = 4_096;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("bytes", |mut guest, (count,)| Ok((guest.data_mut().bytes(count)?,)))
}

impl Host for GuestState {
    fn bytes(&mut self, count: u32) -> wasmtime::Result<Vec<u8>> {
        self.enter_host()?;
        if count > BYTES_MAX {
            return Err(LimitExceeded("random.bytes gives at most 4096 bytes a call").into());
        }
        let mut bytes = vec![0; count as usize];
        match &self.inputs {
            Some(inputs) => inputs.random(&mut bytes),
            None => getrandom::fill(&mut bytes)
                .map_err(|_| wasmtime::Error::msg("the system has no random bytes"))?,
        }
        Ok(bytes)
    }
}
