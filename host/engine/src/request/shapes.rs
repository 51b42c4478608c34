//! The tables of the interface: which members each object may have and what they may hold.
//!
//! Fields and values are those of the public Responses interface and its extensions. A table says what
//! is checked; whatever it does not name is left alone.

pub(super) mod body;
pub(super) mod embeddings;
pub(super) mod items;
pub(super) mod parts;
pub(super) mod plugins;
pub(super) mod provider;
pub(super) mod server_tools;
pub(super) mod tools;
