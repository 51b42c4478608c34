//! Foreign text as guests of any kind need it: decoded, cut to a length, written
//! in lines and blocks. Nothing here knows a world.

mod charset;
mod clip;
mod writer;

pub use charset::decode;
pub use clip::{Clipped, clip};
pub use writer::Writer;
