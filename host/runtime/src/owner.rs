//! The owner of calls: what permits are counted by and idle instances are kept for.

use std::borrow::Borrow;
use std::sync::Arc;

/// Decides which idle instances may serve a call. An opaque id: the API key that pays for the call,
/// or anything narrower. An instance never serves two owners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The owner with this id.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }
}

/// Lets maps be searched by the id.
impl Borrow<str> for Owner {
    fn borrow(&self) -> &str {
        &self.0
    }
}
