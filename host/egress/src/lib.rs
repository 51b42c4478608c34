//! All HTTP requests that the host sends to servers outside.
//!
//! [`Egress::send`] sends a provider's request to an origin that the operator configured.
//! [`Egress::fetch`] sends a request to a URL that a guest wrote. Both check the address after it
//! is resolved and before it is dialled. The secret is written into the request in this crate and
//! nowhere else. Answers are bounded in bytes and in time and are searched for that secret. Each
//! request is sent once: this crate follows no redirect, uses no proxy, keeps no cookie and decodes
//! no compression.
//!
//! Comments cite the egress rules by number (R1 to R24); `docs/egress-rules.md` lists them.

mod address;
mod range;
mod reach;
mod rule;

mod origin;
mod path;
mod target_url;

mod config;
mod resolver;
mod tls;

mod dial;
mod pool;
mod wire;

mod scrub;

mod credential;
mod headers;
mod place;
mod placeholder;
mod slot;

mod client;
mod error;
mod fetch;
mod reply;

pub use address::AddressClass;
pub use client::{Egress, Limits, Outgoing};
pub use config::{ConfigError, EgressConfig};
pub use credential::{Credential, CredentialError, Placement};
pub use error::{Error, Reason, Unreached, Untrusted};
pub use fetch::{GuestBody, GuestLimits, GuestReply, GuestRequest};
pub use headers::is_credential_header;
pub use origin::{Origin, OriginError};
pub use path::PathError;
pub use place::SECRETS_MAX;
pub use placeholder::{Placeholder, placeholders};
pub use range::{IpRange, RangeError};
pub use reply::{Reply, ReplyBody};
pub use scrub::{ScrubSet, Scrubber};
pub use slot::{Injection, Slot, SlotError};
pub use target_url::{Target, TargetError};
pub use tls::are_roots;
