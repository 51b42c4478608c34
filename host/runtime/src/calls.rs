//! Typed calls into guests, one file per kind of plugin. Each checks the promises of `wit/` about
//! the answer, so callers do not have to.

mod answers;
mod hook;
pub(crate) mod provider;
pub(crate) mod router;
mod tool;

use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Lift, Lower, TypedFunc};

use crate::guest::exports::Exports;
use crate::guest::live::LiveInstance;
use crate::instance::Instance;
use crate::plugin::{Compiled, Functions};

/// Looks up a function with borrowed parameters, see [`Functions`].
fn borrowing<P, R>(
    instance: &mut Instance,
    pick: impl FnOnce(&Functions) -> Option<ComponentExportIndex>,
) -> wasmtime::Result<TypedFunc<P, R>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let index = indices(instance, |compiled| pick(&compiled.functions))?;
    let LiveInstance { store, handle, .. } = &mut *instance.live;
    handle.get_typed_func(store, index)
}

/// Same as [`borrowing`], for a function that is called repeatedly: looked up once per instance.
fn cached<P, R>(
    instance: &mut Instance,
    slot: impl Fn(&mut Exports) -> &mut Option<TypedFunc<P, R>>,
    pick: impl FnOnce(&Functions) -> Option<ComponentExportIndex>,
) -> wasmtime::Result<TypedFunc<P, R>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    if let Some(known) = slot(&mut instance.live.exports) {
        return Ok(*known);
    }
    let found = borrowing(instance, pick)?;
    Ok(*slot(&mut instance.live.exports).insert(found))
}

/// Export indices that were looked up when the plugin was compiled.
fn indices<T>(instance: &Instance, pick: impl FnOnce(&Compiled) -> Option<T>) -> wasmtime::Result<T> {
    let found = instance.compiled().and_then(pick);
    found.ok_or_else(|| wasmtime::Error::msg("an interface that was checked for is gone"))
}
