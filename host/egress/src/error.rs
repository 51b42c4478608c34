//! Why nothing, or not all, came back.
//!
//! The set is closed and carries no text from outside: not the URL, not what the other side said, not what
//! a library thinks of it. Whatever happens, an error may be shown to a client or written to a log.

use std::{error::Error as StdError, io};

use crate::PathError;

/// Why a request was not answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rule of this host forbids the request; nothing was sent.
    #[error("the request was refused: {reason}")]
    Refused {
        /// The rule.
        reason: Reason,
    },
    /// The name was not found, or nobody took the connection in time; nothing was sent.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The server's certificate is not acceptable; nothing was sent.
    #[error("the server's certificate is not trusted")]
    Untrusted,
    /// The head or the next piece of the body did not come in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The connection broke, or what came was not the HTTP that was asked for.
    #[error("the connection to the server broke")]
    Broken,
    /// The answer is longer than accepted.
    #[error("the answer is too large")]
    TooLarge,
}

impl Error {
    /// Is it certain that no byte of the request left this machine? Then it is safe to send it elsewhere.
    ///
    /// `false` means that the server may have seen it.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unreachable | Self::Untrusted)
    }
}

/// The rule that a request broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The path would leave the origin, or is malformed.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The name resolves to a cloud metadata service.
    #[error("the name leads to a metadata service")]
    Metadata,
    /// The name resolves to an address to which plain http is not allowed.
    #[error("plain http is allowed to loopback and private addresses only")]
    Address,
    /// A credential would travel in the clear.
    #[error("a credential travels over https only, or over http to loopback where that is allowed")]
    Plaintext,
    /// A header that belongs to the connection, to this host or to nobody.
    #[error("a header may not be set by a guest")]
    Header,
    /// The guest set the header that carries the credential, or another that does the same service.
    #[error("a header competes with the credential")]
    CredentialHeader,
    /// Not one of the methods that guests may use.
    #[error("the method must be GET, HEAD, POST, PUT, PATCH or DELETE")]
    Method,
    /// The port is not among `egress.ports` (R6).
    #[error("the port is not open: the operator lists ports in egress.ports")]
    Port,
    /// Plain http from a guest, other than to loopback where that is allowed (R5).
    #[error("plain http is open to loopback only, and only with egress.allow_plaintext_loopback")]
    PlaintextGuest,
    /// The host is or resolves to an address that is not open to guests (R12).
    #[error(
        "the host leads to an address that is not open: the operator lists ranges in egress.allow_private"
    )]
    Closed,
    /// A placeholder is malformed, out of place, one too many, or none of its secret goes along (R2).
    #[error("a placeholder is malformed, in the wrong place or names a secret that is not granted")]
    Placeholder,
    /// The header, query parameter or JSON member that a secret is for is there already (R3, R15).
    #[error("the place for a secret is taken")]
    SlotTaken,
    /// The body is no JSON text with an object where a secret's member would go (R3).
    #[error("the body is not JSON with an object at the place for a secret")]
    JsonBody,
    /// More than 16 secrets for one request.
    #[error("there are too many secrets for one request")]
    TooManySecrets,
    /// The secret was released to another host, or the host of the request is no name (R4, R7).
    #[error("the secret is not bound to this host")]
    SecretHost,
    /// `secret_not_header_safe` (R14): a control character, a character beyond ASCII, or a space at an end.
    #[error("the secret cannot be sent in a header: is there a line break or a space at its end?")]
    SecretNotHeaderSafe,
    /// The secret is empty, or longer than its place takes: 16 KiB with what is around it (R17).
    #[error("the secret is empty or too long for its place")]
    SecretLength,
    /// More than 100 headers, or a value above 16 KiB.
    #[error("there are too many headers, or one is too long")]
    HeadersTooLarge,
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::Refused { reason }
    }
}

/// The resolver's word for an address it will not give out; it travels through the HTTP library.
#[derive(Debug, thiserror::Error)]
#[error("address refused")]
pub(crate) struct AddressRefused(pub(crate) Reason);

/// Reduces what kept us from connecting to our errors, and drops the rest of it: it may contain the URL.
pub(crate) fn reduce(error: &(dyn StdError + 'static)) -> Error {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(AddressRefused(reason)) = current.downcast_ref() {
            return Error::Refused { reason: *reason };
        }
        if is_certificate(current) {
            return Error::Untrusted;
        }
        cause = current.source();
    }
    Error::Unreachable
}

fn is_certificate(error: &(dyn StdError + 'static)) -> bool {
    matches!(
        innermost(error).downcast_ref(),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

/// TLS errors travel inside I/O errors, which leave what they wrap out of their chain of sources.
fn innermost<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error
}
