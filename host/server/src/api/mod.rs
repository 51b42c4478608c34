//! The API endpoints.

pub(crate) mod credits;
pub(crate) mod inference;
pub(crate) mod key;
pub(crate) mod keys;
pub(crate) mod media;
pub(crate) mod models;
pub(crate) mod openapi;
mod query;
mod spending;
mod store_wait;
pub(crate) mod vault;
