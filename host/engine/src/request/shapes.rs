//! The tables of the API: which members each object may have, and which values they may have.
//!
//! Fields and values are those of the public Responses API and its extensions. Members that a table
//! does not name are not checked.

pub(super) mod body;
pub(super) mod embeddings;
pub(super) mod items;
pub(super) mod parts;
pub(super) mod plugins;
pub(super) mod provider;
pub(super) mod server_tools;
pub(super) mod tools;
