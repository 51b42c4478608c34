//! The host's implementation of the guests' imports: one file per interface of `wit/`, and the
//! linker with the granted interfaces. The files convert types and count calls. Rules about hosts,
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
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::cofferdam::plugin;
use crate::grant::Grant;
use crate::guest::GuestState;
use crate::manifest::Import;

/// The linker of one plugin: WASI without any access, log, config, the granted imports, and the
/// optional ones, which answer "denied" if they are not granted.
pub(crate) fn linker(engine: &Engine, grant: &Grant) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    plugin::types::add_to_linker::<GuestState, HasSelf<GuestState>>(&mut linker, own)?;
    plugin::hooks::add_to_linker::<GuestState, HasSelf<GuestState>>(&mut linker, own)?;
    plugin::log::add_to_linker::<GuestState, HasSelf<GuestState>>(&mut linker, own)?;
    plugin::config::add_to_linker::<GuestState, HasSelf<GuestState>>(&mut linker, own)?;
    for import in grant.linked_imports() {
        add(&mut linker, import)?;
    }
    Ok(linker)
}

fn add(linker: &mut Linker<GuestState>, import: Import) -> wasmtime::Result<()> {
    match import {
        Import::Clock => plugin::clock::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
        Import::Random => plugin::random::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
        Import::Http => {
            plugin::http::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own)?;
            plugin::http_stream::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own)
        }
        Import::Model => {
            plugin::model::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own)?;
            plugin::model_panel::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own)
        }
        Import::Catalog => plugin::catalog::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
        Import::Scratch => plugin::scratch::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
        Import::Request => plugin::request::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
        Import::DeferredTools => {
            plugin::deferred_tools::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own)
        }
        Import::ToolCall => plugin::tool_call::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, own),
    }
}

fn own(state: &mut GuestState) -> &mut GuestState {
    state
}

/// These interfaces have types only.
impl plugin::types::Host for GuestState {}
impl plugin::hooks::Host for GuestState {}
