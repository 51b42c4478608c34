//! The engine makes responses: it parses the request, selects the endpoints that can serve it,
//! makes the attempts, assembles the answer and charges it. The engine contains no HTTP server and
//! no provider's format: guests translate formats, and the egress crate sends requests.
//!
//! Modules stand from the entry of a request down to what all of them share. Each imports only
//! modules below it; a test reads the imports.

#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[expect(clippy::expect_used, clippy::indexing_slicing, reason = "for tests only")]
pub mod fuzzing;

mod embed;
mod respond;

mod run;

mod attempt;
mod routing;

mod plugins;

mod scope;

mod engine;

mod answer;

pub mod assembler;

mod credential;
mod trace;

mod money;

pub mod export;

pub mod catalog;

pub mod memory;

mod failure;
mod plugin_defaults;
mod upstream;

mod authentication;
mod caller;
mod lifecycle;
pub mod limits;

pub mod timeline;

pub mod cost;

mod in_place;
mod log_throttle;
mod offload;
mod random;
mod refusal;

pub mod request;

pub use answer::{Answer, AnswerBody, RespondOptions};
pub use authentication::{Authentication, OperatorKey};
pub use caller::Caller;
pub use catalog::options::AllowedOptions;
pub use engine::{Engine, EngineParts, NoRouter};
pub use in_place::boxed;
pub use lifecycle::deadline::Timeouts;
pub use lifecycle::shutdown::{Shutdown, ShutdownSender};
pub use lifecycle::stream::EventStream;
pub use limits::allowance::{Allowance, AnswerCounts, RequestEnd, RunPermit, Running, TokenLimits};
pub use memory::Memory;
pub use plugin_defaults::{PluginDefault, PluginDefaults};
pub use plugins::hooks::{is_own_entry, is_request_plugin};
pub use plugins::http_capability::{BoundedRequest, redirected};
pub use plugins::questions::check_question;
pub use plugins::tools::render_calls_as_text;
pub use refusal::{Refusal, stream_code};
pub use upstream::framing::{FRAME_BYTES_MAX, FrameTooLong, Framer};
