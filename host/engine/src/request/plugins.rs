//! The request's own plugin entries: settings for hooks and for model routers.

use bytes::Bytes;

/// One entry of `plugins`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlugin {
    /// Its place in the request, for messages.
    pub index: usize,
    /// Which plugin: one of the twelve known ids or one of those the caller added.
    pub id: String,
    /// False switches the plugin off for this request, also where it is on by default.
    pub enabled: bool,
    /// The whole entry as JSON.
    pub json: Bytes,
}
