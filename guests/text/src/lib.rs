//! Functions for untrusted text, for guests of any kind: decoding, cutting to a length, writing lines and
//! blocks. The crate depends on no world.

mod charset;
mod clip;
mod writer;

pub use charset::decode;
pub use clip::{Clipped, clip};
pub use writer::Writer;
