//! The host's implementation of the guests' imports: one file per interface of `wit/`, and the
//! linker with the granted interfaces under the names of the guest's line. The generated functions
//! that fill a linker know the names of the newest line only. The files convert types and count calls. Rules about hosts,
//! models and tools are in the capabilities' implementations.

mod catalog;
mod clock;
mod config;
mod deferred_tools;
mod http;
mod http_stream;
mod log;
mod model;
mod model_panel;
mod random;
mod request;
mod scratch;
mod tool_call;

use wasmtime::Engine;
use wasmtime::component::{Linker, LinkerInstance};

use crate::bindings::cofferdam::plugin;
use crate::contract::ContractLine;
use crate::grant::Grant;
use crate::guest::GuestState;
use crate::manifest::Import;

/// One interface of a linker. Each file gives its functions under their names in `wit/`.
type Interface<'a> = LinkerInstance<'a, GuestState>;

/// A guest exceeded a limit of an import that the contract states. The text names the function and the limit.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LimitExceeded(pub(crate) &'static str);

/// The linker of one plugin, with the names of its line: WASI without any access, log, config, the
/// granted imports, and the optional ones, which answer "denied" if they are not granted.
pub(crate) fn linker(
    engine: &Engine,
    grant: &Grant,
    line: &ContractLine,
) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    let mut add = |interface: &str, link: fn(&mut Interface<'_>) -> wasmtime::Result<()>| {
        link(&mut linker.instance(&line.interface_name(interface))?)
    };
    // These two have types only.
    add("types", |_| Ok(()))?;
    add("hooks", |_| Ok(()))?;
    add("log", log::link)?;
    add("config", config::link)?;
    for import in grant.linked_imports() {
        match import {
            Import::Clock => add("clock", clock::link)?,
            Import::Random => add("random", random::link)?,
            Import::Http => {
                add("http", http::link)?;
                add("http-stream", http_stream::link)?;
            }
            Import::Model => {
                add("model", model::link)?;
                add("model-panel", model_panel::link)?;
            }
            Import::Catalog => add("catalog", catalog::link)?,
            Import::Scratch => add("scratch", scratch::link)?,
            Import::Request => add("request", request::link)?,
            Import::DeferredTools => add("deferred-tools", deferred_tools::link)?,
            Import::ToolCall => add("tool-call", tool_call::link)?,
        }
    }
    Ok(linker)
}

/// These interfaces have types only.
impl plugin::types::Host for GuestState {}
impl plugin::hooks::Host for GuestState {}
