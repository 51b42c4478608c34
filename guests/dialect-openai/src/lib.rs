//! What the two dialects of OpenAI's interface have in common: embeddings, the
//! translation of errors, and readers for JSON whose fields cannot be relied on.
//! Plain types only, so that each guest converts to its own generated ones.

mod embeddings;
mod error;
mod failure;
mod lenient;
mod message;
#[cfg(feature = "transcript")]
mod transcript;

pub use embeddings::{EmbeddingFailure, Embeddings, PreparedEmbeddings, decode_embeddings, prepare_embeddings};
pub use error::{map_error, map_reported};
pub use failure::{Failure, Kind};
pub use lenient::{Count, List, MaybeText};
#[cfg(feature = "transcript")]
pub use transcript::{Framer, frames_per_read};
