//! The only way out of the machine.
//!
//! Everything the host sends to somebody else's server passes [`Egress::send`], to an origin that the operator
//! named, or [`Egress::fetch`], to a URL that a guest wrote: the address is checked after it was resolved and
//! before it is dialled, the secret is written into the request here and nowhere else, and what comes back is
//! bounded in bytes and in time and searched for that secret. A request goes out once; this crate follows no
//! redirect, asks no proxy, keeps no cookie and decodes no compression.
//!
//! Rules R1 to R24 of the vault's release path are cited where they are kept.

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
