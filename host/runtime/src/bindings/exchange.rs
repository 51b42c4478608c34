//! The type of the resource `http-stream.exchange`, which the generated code refers to: an answer
//! whose body is read in chunks.

use std::future::Future;
use std::pin::Pin;

use super::cofferdam::plugin::http::{HttpError, Response};

/// The future that a capability's method returns. Boxed to keep the traits object safe.
pub type Opening<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer whose body has not been read.
pub struct HttpExchange {
    /// HTTP status code.
    pub status: u16,
    /// The headers that the guest may read.
    pub headers: Vec<(String, String)>,
    /// The body, read in chunks.
    pub body: Box<dyn HttpBody>,
}

impl From<Response> for HttpExchange {
    /// Makes an exchange from an answer that was already read.
    fn from(response: Response) -> Self {
        let Response { status, headers, body, .. } = response;
        Self { status, headers, body: Box::new(Whole(body)) }
    }
}

/// A body that was already read.
struct Whole(Vec<u8>);

impl HttpBody for Whole {
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>> {
        let piece = std::mem::take(&mut self.0);
        Box::pin(std::future::ready(Ok(piece)))
    }
}

/// A body that is read in chunks. Dropping it closes its connection.
pub trait HttpBody: Send {
    /// The next chunk; empty at the end.
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>>;
}
