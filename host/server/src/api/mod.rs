//! The endpoints, one file each.

pub(crate) mod embeddings;
pub(crate) mod inference;
pub(crate) mod key;
pub(crate) mod models;
pub(crate) mod responses;
pub(crate) mod vault;
