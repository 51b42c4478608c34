//! All HTTP requests that the host sends to servers outside.
//!
//! [`Egress::send`] sends a provider's request to an origin that the operator configured.
//! [`Egress::fetch`] sends a request to a URL that a guest wrote. Both check the address after it
//! is resolved and before it is dialled. The secret is written into the request in this crate and
//! nowhere else. Answers are bounded in bytes and in time and are searched for that secret. Each
//! request is sent once: this crate follows no redirect, uses no proxy, keeps no cookie and decodes
//! no compression.
//!
//! The modules are listed from the two ways to send a request down to what they share. Each module
//! imports only modules below it.
//!
//! Comments cite the egress rules by number (R1 to R24); `docs/egress-rules.md` lists them.

#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "for tests only")]
pub mod fuzzing;

mod fetch;

mod client;

mod dial;
mod resolver;
mod tls;

mod rule;

mod guest_request;
mod target_url;

mod origin;
mod reach;

mod address;
mod config;
mod range;

mod headers;

mod credential;
mod placing;

mod placement;

mod header_rules;
mod placeholder;

mod reply;

mod pool;
mod wire;

mod local_stream;

mod scrub;

mod error;
mod limits;
mod path;

pub use address::AddressClass;
pub use client::{Egress, Outgoing, check_outgoing};
pub use config::{EgressConfig, EgressConfigError};
pub use credential::{Credential, CredentialError};
pub use error::{Error, Reason, Unreached, Untrusted};
pub use fetch::{GuestBody, GuestReply, SentSecret, SentSecrets};
pub use guest_request::{CheckedRequest, GuestLimits, GuestRequest, Placeholder, SECRETS_MAX, placeholders};
pub use header_rules::is_credential_header;
pub use limits::ExchangeLimits;
pub use origin::{Origin, OriginError};
pub use path::PathError;
pub use placement::{PlacedSecret, Placement, PlacementError};
pub use range::{IpRange, RangeError};
pub use reply::{Reply, ReplyBody};
pub use scrub::{ScrubSet, Scrubber};
pub use target_url::{Target, TargetError};
pub use tls::are_roots;
