//! Code that both dialects of OpenAI's API share: embeddings, the translation of errors, and
//! reading and writing JSON objects without parsing their values.

mod embeddings;
mod error;
pub mod failure;
mod json;
mod message;
#[cfg(feature = "transcript")]
mod render;
mod tier;
#[cfg(feature = "transcript")]
mod transcript;

pub use embeddings::{decode_embeddings, prepare_embeddings};
pub use error::{map_error, map_reported};
pub use json::{Fields, dollars, log_probabilities, on_one_line, picked};
#[cfg(feature = "transcript")]
pub use render::render;
pub use tier::{requested_tier, served_tier};
#[cfg(feature = "transcript")]
pub use transcript::{Framer, frames_per_read};
