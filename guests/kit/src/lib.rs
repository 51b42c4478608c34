//! Shared code of the guests: the bindings of all worlds, [`export!`], helpers for server tools in
//! [`server_tool`], and typed, borrowing readers of the JSON that the host passes to provider guests and
//! hooks.
//!
//! The readers are lenient where the API is open: unknown item, part and tool types become
//! `Other`. They never panic, because a panic ends the guest's instance.

#[cfg(any(test, all(target_family = "wasm", feature = "allocator")))]
#[allow(unsafe_code, reason = "an allocator hands out memory by its address")]
mod allocator;
#[allow(unsafe_code, unused_qualifications, clippy::all, clippy::pedantic, reason = "generated")]
pub mod bindings;
mod constructors;
mod data_url;
mod decoder;
mod embedding;
mod fields;
mod hash;
mod item;
pub mod json;
mod lenient;
mod options;
mod part;
mod request;
pub mod server_tool;
mod tools;
mod upstream_error;

pub use cofferdam_protocol::is_text_member;
pub use data_url::DataUrl;
pub use decoder::{Decoder, Events, Malformed, ReadAnswer};
pub use embedding::{EmbeddingInput, EmbeddingPart, EmbeddingRequest, vector_bytes};
pub use fields::Fields;
pub use hash::fnv_1a;
pub use item::{Item, Message, Reasoning, Role};
pub use lenient::{Count, JsonText, List, MaybeText, Text, TextOrList, if_readable, reported_error};
pub use options::add_options;
pub use part::{Content, Marks, Part};
pub use request::{ReasoningSettings, Request, TextFormat, TextSettings};
pub use tools::{AllowedTool, Tool, ToolChoice};
pub use upstream_error::{kind_of_status, retry_after_ms, wait_ms};
#[doc(hidden)]
pub use wit_bindgen;
