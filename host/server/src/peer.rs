//! The client's end of a connection, as each request on the connection gets it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stall::AnswerGuard;

/// The client's end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Requests on this connection that are not answered completely.
    pub(crate) running: Arc<AtomicUsize>,
}

impl Peer {
    /// Counts a request of this connection as running until the result is dropped. It is called in the
    /// task of the request.
    pub(crate) fn begin_request(&self) -> RunningRequest {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningRequest { running: Arc::clone(&self.running), answer: AnswerGuard::current() }
    }
}

/// A request that is not answered completely. Its connection is not idle.
pub(crate) struct RunningRequest {
    running: Arc<AtomicUsize>,
    /// Over HTTP/1 the stall timer of the socket is enough; see `stall`.
    answer: Option<Arc<AnswerGuard>>,
}

impl RunningRequest {
    /// Notes that the connection asks for the next chunk of the answer.
    pub(crate) fn asked(&self) {
        if let Some(answer) = &self.answer {
            answer.chunk_taken();
        }
    }

    /// Notes that a chunk was handed to the connection.
    pub(crate) fn sent(&self) {
        if let Some(answer) = &self.answer {
            answer.chunk_handed();
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}
