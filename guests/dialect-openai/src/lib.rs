//! Code that both dialects of OpenAI's API share: embeddings, the translation of errors, and
//! readers for JSON whose fields are not reliable. It uses plain types only; each guest
//! converts them to its own generated ones.

mod embeddings;
mod error;
mod failure;
mod json;
mod lenient;
mod message;
mod tier;
#[cfg(feature = "transcript")]
mod transcript;

pub use embeddings::{
    EmbeddingFailure, Embeddings, PreparedEmbeddings, decode_embeddings, prepare_embeddings,
};
pub use error::{map_error, map_reported};
pub use failure::{Failure, Kind};
pub use json::{Fields, ObjectWriter, dollars, log_probabilities, on_one_line, picked};
pub use lenient::{Count, JsonText, List, MaybeText, TextOrList};
pub use tier::{requested_tier, served_tier};
#[cfg(feature = "transcript")]
pub use transcript::{Framer, frames_per_read};
