//! Typed calls into guests, one file per kind of plugin. Each checks of the
//! answer what `wit/` promises about it, so that nobody behind it has to.

mod answers;
mod hook;
pub(crate) mod provider;
pub(crate) mod router;
mod tool;

use wasmtime::component::{ComponentNamedList, Lift, Lower, TypedFunc};

use crate::instance::Instance;
use crate::plugin::Compiled;

/// The version in the names of the contract's interfaces. Components built
/// against a compatible one are found under it too.
const VERSION: &str = "0.1.0";

/// Looks a function up whose parameters are borrowed where the generated
/// bindings would want owned bytes: bodies are copied once, into the guest.
fn borrowing<P, R>(
    instance: &mut Instance,
    interface: &str,
    function: &str,
) -> wasmtime::Result<TypedFunc<P, R>>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let name = format!("cofferdam:plugin/{interface}@{VERSION}");
    let missing = || wasmtime::Error::msg("an export that was there when the plugin was loaded is gone");
    let outer = instance.handle.get_export_index(&mut instance.store, None, &name).ok_or_else(missing)?;
    let index =
        instance.handle.get_export_index(&mut instance.store, Some(&outer), function).ok_or_else(missing)?;
    instance.handle.get_typed_func(&mut instance.store, index)
}

/// What was looked up when the plugin was compiled.
fn indices<T: Clone>(instance: &Instance, pick: impl FnOnce(&Compiled) -> Option<&T>) -> wasmtime::Result<T> {
    let found = instance.compiled().and_then(pick).cloned();
    found.ok_or_else(|| wasmtime::Error::msg("an interface that was checked for is gone"))
}
