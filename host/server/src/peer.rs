//! The client's end of a connection, as each request on the connection gets it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stall::OpenAnswers;

/// The client's end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Requests on this connection that are not answered completely.
    pub(crate) running: Arc<AtomicUsize>,
    /// Responses that are being sent on this connection.
    pub(crate) answers: Arc<OpenAnswers>,
}

impl Peer {
    /// Counts a request of this connection as running until the result is dropped.
    pub(crate) fn begin_request(&self) -> RunningRequest {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningRequest(Arc::clone(&self.running))
    }
}

/// A request that is not answered completely. Its connection is not idle.
pub(crate) struct RunningRequest(Arc<AtomicUsize>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
