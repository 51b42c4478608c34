//! `scratch`: values that are kept until the request ends.

use crate::bindings::cofferdam::plugin::scratch::{Host, ScratchError};
use crate::guest::GuestState;

impl Host for GuestState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<Vec<u8>>> {
        self.enter_host()?;
        Ok(self.services.scratch.read(&key))
    }

    fn set(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), ScratchError>> {
        self.enter_host()?;
        Ok(self.services.scratch.keep(key, value))
    }
}
