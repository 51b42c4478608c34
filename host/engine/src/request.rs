//! The bodies of POST /v1/responses and POST /v1/embeddings, parsed strictly.
//!
//! The body is scanned once into a tree that borrows from it, each field is checked against static
//! tables, and one JSON document is written for guests. The result is either typed and bounded, or
//! an error that names the JSON path. Fields without a rule are ignored and are not passed on.

mod bounds;
mod description;
mod echo;
mod embeddings;
mod fields;
mod guest;
mod host_item;
mod hosted;
mod input;
mod invalid;
mod json;
mod plugin_tools;
mod plugins;
mod prompt;
mod provider;
mod render;
mod responses;
mod rule;
mod seals;
mod server_items;
mod settings;
mod shapes;
mod tool_source;
mod tools;
mod transcript;
pub(crate) mod walk;
mod weight;

pub use bounds::{ITEMS_MAX, RequestBounds};
pub use description::request_schemas;
pub use embeddings::{EmbeddingsRequest, EncodingFormat};
pub use guest::{GuestTurn, is_shown_to_guests};
pub(crate) use host_item::HostItem;
pub use hosted::{Hosted, HostedMember, Meaning};
pub use invalid::{InvalidKind, InvalidRequest};
pub(crate) use plugin_tools::tool_of_plugin;
pub use plugins::RequestPlugin;
pub use prompt::{PromptRole, PromptTemplate, Prompts};
pub use provider::{AllowedEndpoints, GivenOptions, ProviderPreferences};
pub(crate) use render::{
    ClientTool, Dialect, RenderedRequest, RenderedTools, no_arguments, read_arguments, render,
};
pub use responses::{ResponsesRequest, TextFacts};
pub(crate) use seals::{Unsealed, without_seals};
pub(crate) use server_items::ToolCallRecord;
pub use settings::{Ability, RouteSetting, ServiceTier, StopCondition, TextFormat, Truncation};
pub use tool_source::{ToolPath, ToolSource};
pub(crate) use tools::is_search;
pub use tools::{RequestTool, ToolChoice};
pub(crate) use transcript::{PlainItem, ToolResult, TranscriptItem, read_transcript};
pub(crate) use weight::Weight;

#[cfg(test)]
mod tests;
