//! `deferred-tools`: functions whose loading the client deferred, for the tool that searches them.

use crate::bindings::cofferdam::plugin::deferred_tools::Host;
use crate::guest::GuestState;
use crate::imports::Interface;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap("all", |mut guest, (): ()| Ok((guest.data_mut().all()?,)))?;
    interface.func_wrap("load", |mut guest, (names,)| guest.data_mut().load(names))
}

impl Host for GuestState {
    fn all(&mut self) -> wasmtime::Result<Vec<u8>> {
        let asked = self.enter_taped("deferred-tools.all", &())?;
        if let Some(all) = asked.recorded()? {
            return Ok(all);
        }
        let all = self.services.deferred.as_ref().map_or_else(|| b"[]".to_vec(), |deferred| deferred.all());
        asked.note(&all);
        Ok(all)
    }

    fn load(&mut self, names: Vec<String>) -> wasmtime::Result<()> {
        let asked = self.enter_taped("deferred-tools.load", &names)?;
        asked.note(&());
        if let Some(deferred) = &self.services.deferred {
            deferred.load(names);
        }
        Ok(())
    }
}
