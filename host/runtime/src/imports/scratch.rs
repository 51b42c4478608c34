//! `scratch`: values that are kept until the request ends.

use crate::bindings::cofferdam::plugin::scratch::{Host, ScratchError};
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("get", |mut guest, (key,)| Ok((guest.data_mut().get(key)?,)))?;
    interface.func_wrap("set", |mut guest, (key, value)| Ok((guest.data_mut().set(key, value)?,)))
}

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
