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
use crate::plugin::Functions;

/// Looks up a function, to be called with borrowed parameters.
fn borrowing<P, R>(
    instance: &mut Instance,
    pick: impl FnOnce(&Functions) -> Option<ComponentExportIndex>,
) -> wasmtime::Result<TypedFunc<P, R>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let index = index(instance, pick)?;
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

/// The index of an exported function, looked up when the plugin was compiled.
fn index(
    instance: &Instance,
    pick: impl FnOnce(&Functions) -> Option<ComponentExportIndex>,
) -> wasmtime::Result<ComponentExportIndex> {
    let found = instance.compiled().and_then(|compiled| pick(&compiled.functions));
    found.ok_or_else(|| wasmtime::Error::msg("a function that was checked for is gone"))
}
