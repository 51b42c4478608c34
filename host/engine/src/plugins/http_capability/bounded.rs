//! The limits that hold for every request of a guest, before its grant is looked at.

use std::time::Duration;

use cofferdam_egress::{GuestLimits, GuestRequest, Target};
use cofferdam_runtime::UnsentRequest;
use cofferdam_runtime::wire::{self, HttpRequest};

/// The longest body of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest body of an answer that a guest gets, in bytes.
const BODY_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// The most redirects that are followed for one request.
const REDIRECTS_MAX: u8 = 5;

/// A request as a guest wrote it, within the limits that hold for all of them. What the grant says of it is not checked
/// yet.
pub struct BoundedRequest {
    /// The request, before any redirect.
    pub request: GuestRequest,
    /// The secrets that the guest places itself.
    pub injections: Vec<wire::Injection>,
    /// The most redirects that are followed.
    pub redirects: u8,
}

impl BoundedRequest {
    /// `time` is the longest time for the request and its redirects.
    ///
    /// # Errors
    ///
    /// The URL is not one, or the body is too long.
    pub fn of(written: HttpRequest, time: Duration) -> Result<Self, UnsentRequest> {
        let HttpRequest { method, url, headers, body, injections, redirects, body_bytes_max, .. } = written;
        let target = Target::parse(&url)?;
        if body.len() > REQUEST_BYTES_MAX {
            return Err(UnsentRequest::invalid("the body of the request is longer than 8 MiB"));
        }
        let limits = GuestLimits { body_bytes_max: body_bytes_max.min(BODY_BYTES_MAX).into(), total: time };
        let request = GuestRequest { method, target, headers, body: body.into(), limits, public_only: false };
        Ok(Self { request, injections, redirects: redirects.min(REDIRECTS_MAX) })
    }
}
