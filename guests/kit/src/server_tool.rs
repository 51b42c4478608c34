//! Shared code of the server tools: readers for settings and arguments, domain rules, HTTP answers as text,
//! and questions to models.
//!
//! Nothing here keeps state, and nothing depends on the name of a tool.

mod domains;
mod fields;
mod media;
mod models;
mod network;
mod paths;
mod single;
#[cfg(feature = "testing")]
pub mod testing;
mod words;

pub use cofferdam_text::{Clipped, clip, decode};
pub use domains::DomainRules;
pub use fields::Fields;
pub use media::Media;
pub use models::{Instance, Manner, Models, Service, failed, members, text_of};
pub use network::{Network, Reading, Streaming, Wire, header, sentence, web_address};
pub use paths::relative_path;
pub use single::{SingleFunction, schema, unknown_function};
pub use words::{grade, lower_words};
