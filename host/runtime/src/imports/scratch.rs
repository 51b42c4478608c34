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
        let asked = self.enter_taped("scratch.get", &key)?;
        if let Some(value) = asked.recorded()? {
            return Ok(value);
        }
        let value = self.services.scratch.read(&key);
        asked.note(&value);
        Ok(value)
    }

    fn set(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), ScratchError>> {
        let asked = self.enter_taped("scratch.set", &(&key, &value))?;
        if let Some(kept) = asked.recorded()? {
            return Ok(kept);
        }
        let kept = self.services.scratch.keep(key, value);
        asked.note(&kept);
        Ok(kept)
    }
}
