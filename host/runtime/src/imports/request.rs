//! `request`: the request being served, for plugins that may read it.

use crate::bindings::cofferdam::plugin::request::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("transcript", |mut guest, (): ()| Ok((guest.data_mut().transcript()?,)))?;
    interface.func_wrap("deferred-tools", |mut guest, (): ()| Ok((guest.data_mut().deferred_tools()?,)))?;
    interface.func_wrap("load-tools", |mut guest, (names,)| guest.data_mut().load_tools(names))
}

impl Host for GuestState {
    fn transcript(&mut self) -> wasmtime::Result<Vec<u8>> {
        let asked = self.enter_taped("request.transcript", &())?;
        if let Some(transcript) = asked.recorded()? {
            return Ok(transcript);
        }
        let transcript =
            self.services.request.as_ref().map_or_else(|| b"[]".to_vec(), |request| request.transcript());
        asked.note(&transcript);
        Ok(transcript)
    }

    fn deferred_tools(&mut self) -> wasmtime::Result<Vec<u8>> {
        let asked = self.enter_taped("request.deferred-tools", &())?;
        if let Some(all) = asked.recorded()? {
            return Ok(all);
        }
        let all = self.services.request.as_ref().map_or_else(|| b"[]".to_vec(), |request| request.all());
        asked.note(&all);
        Ok(all)
    }

    fn load_tools(&mut self, names: Vec<String>) -> wasmtime::Result<()> {
        let asked = self.enter_taped("request.load-tools", &names)?;
        asked.note(&());
        if let Some(request) = &self.services.request {
            request.load(names);
        }
        Ok(())
    }
}
