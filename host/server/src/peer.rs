//! The client's end of a connection, as each request on the connection gets it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

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
