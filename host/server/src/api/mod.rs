//! The API endpoints.

pub(crate) mod credits;
pub(crate) mod embeddings;
pub(crate) mod inference;
pub(crate) mod key;
pub(crate) mod keys;
mod media;
pub(crate) mod models;
mod query;
pub(crate) mod responses;
mod spending;
mod store_wait;
pub(crate) mod vault;
