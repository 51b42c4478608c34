//! The functions that guests export: their parameters and answers, and those of a live guest that
//! were looked up. Each is called with borrowed parameters, so that a body is copied once, into the
//! guest.

use std::future::Future;
use std::pin::Pin;

use wasmtime::component::{ComponentExportIndex, ComponentType, Lift, ResourceAny, TypedFunc};

use super::live::LiveInstance;
use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::wire::{
    Candidate, Decision, EmbeddingFailure, Embeddings, Event, Failure, Frame, Output, Prepared,
    PreparedEmbeddings, RequestSummary, ResponseHead, Target, ToolError,
};

pub(crate) type Route<'a> = (&'a RequestSummary, &'a [Candidate], u64);
pub(crate) type RouteAnswer = (Result<Decision, Failure>,);
pub(crate) type Prepare<'a> = (&'a [u8], &'a Target, &'a GuestContext);
pub(crate) type PrepareAnswer = (Result<Prepared, Failure>,);
pub(crate) type EmbeddingsAnswer = (Result<PreparedEmbeddings, EmbeddingFailure>,);
pub(crate) type Decode<'a> = (&'a ResponseHead, &'a [u8]);
pub(crate) type VectorsAnswer = (Result<Embeddings, Failure>,);
pub(crate) type EventsAnswer = (Result<Vec<Event>, Failure>,);
pub(crate) type Invoke<'a> = (&'a str, &'a [u8], &'a [u8], &'a GuestContext);

/// The exports of one instance that were looked up. Cached because a look-up compares types, which
/// costs as much as a short call.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) route: Option<TypedFunc<Route<'static>, RouteAnswer>>,
    pub(crate) prepare: Option<TypedFunc<Prepare<'static>, PrepareAnswer>>,
    pub(crate) prepare_embeddings: Option<TypedFunc<Prepare<'static>, EmbeddingsAnswer>>,
    pub(crate) decode_embeddings: Option<TypedFunc<Decode<'static>, VectorsAnswer>>,
    pub(crate) new_decoder: Option<TypedFunc<(&'static ResponseHead,), (ResourceAny,)>>,
    pub(crate) feed: Option<TypedFunc<(ResourceAny, &'static [Frame]), EventsAnswer>>,
    pub(crate) finish: Option<TypedFunc<(ResourceAny,), EventsAnswer>>,
}

/// Calls `tools.invoke` of a guest whose output has another type than [`Output`].
pub(crate) type InvokeTool =
    for<'a> fn(&'a mut LiveInstance, ComponentExportIndex, Invoke<'a>) -> Invoking<'a>;

/// The future of [`InvokeTool`].
pub(crate) type Invoking<'a> =
    Pin<Box<dyn Future<Output = wasmtime::Result<Result<Output, ToolError>>> + Send + 'a>>;

/// Calls `tools.invoke`, whose output has the type `O`.
pub(crate) async fn invoke<O>(
    live: &mut LiveInstance,
    index: ComponentExportIndex,
    parameters: Invoke<'_>,
) -> wasmtime::Result<Result<Output, ToolError>>
where
    O: ComponentType + Lift + Into<Output> + Send + Sync + 'static,
{
    let LiveInstance { store, handle, .. } = live;
    let function: TypedFunc<Invoke<'_>, (Result<O, ToolError>,)> =
        handle.get_typed_func(&mut *store, index)?;
    Ok(function.call_async(store, parameters).await?.0.map(Into::into))
}

/// [`invoke`] as an [`InvokeTool`].
pub(crate) fn invoke_converted<'a, O>(
    live: &'a mut LiveInstance,
    index: ComponentExportIndex,
    parameters: Invoke<'a>,
) -> Invoking<'a>
where
    O: ComponentType + Lift + Into<Output> + Send + Sync + 'static,
{
    Box::pin(invoke::<O>(live, index, parameters))
}
