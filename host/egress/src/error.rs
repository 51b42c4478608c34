//! Why a request failed or its answer is incomplete.
//!
//! The set of errors is closed and carries no text from outside: neither the URL, nor what the
//! server sent, nor the message of a library (egress rule R21). So every error here may be shown to
//! a client or written to a log.

use std::{error::Error as StdError, io};

use crate::PathError;

/// Why a request was not answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rule of this host forbids the request; nothing was sent.
    #[error("the request was refused: {reason}")]
    Refused {
        /// The rule that the request broke.
        reason: Reason,
    },
    /// The name was not found, or no connection was made in time; nothing was sent.
    #[error("the server cannot be reached: {0}")]
    Unreachable(Unreached),
    /// The server's certificate is not acceptable; nothing was sent.
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(Untrusted),
    /// The head or the next chunk of the body did not arrive in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The connection broke, or the answer was not valid HTTP or not the kind that was requested.
    #[error("the connection to the server broke")]
    Broken,
    /// The answer is longer than the limit.
    #[error("the answer is too large")]
    TooLarge,
}

impl Error {
    /// Returns whether it is certain that no server has processed the request: no byte of it left
    /// this machine, or the one that got it says so. In that case the request can safely be sent to
    /// another server.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unreachable(_) | Self::Untrusted(_))
    }
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// DNS says that the name does not exist or has no address.
    #[error("the name is unknown, it has no address")]
    UnknownName,
    /// No name server gave a usable answer about the name.
    #[error("no name server answers")]
    NoNameServer,
    /// The machine answered, but no server listens on the port.
    #[error("the connection was refused, no server listens on this port")]
    Refused,
    /// No connection was made within the connect timeout.
    #[error("no connection within timeouts.connect_ms")]
    TimedOut,
    /// The system has no route to the address.
    #[error("there is no route to its address")]
    NoRoute,
    /// The server did not complete the TLS handshake.
    #[error("the TLS handshake failed, does this port speak https?")]
    NoTls,
    /// The connection ended before it could be used.
    #[error("the server closed the connection at once")]
    Closed,
}

/// Why a certificate is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is signed by an authority that is not among the trusted roots.
    #[error("it is signed by an unknown root; egress.roots adds one")]
    UnknownRoot,
    /// It is valid for other names than the requested one.
    #[error("it is not for this name")]
    WrongName,
    /// Its validity period has ended.
    #[error("it has expired")]
    Expired,
    /// Its validity period has not begun.
    #[error("it is not valid yet, is the clock of this machine right?")]
    NotYetValid,
    /// Any other problem, such as a wrong key usage or a revoked certificate.
    #[error("it cannot be verified")]
    Other,
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
    /// A credential would be sent without TLS.
    #[error("a credential travels over https only, or over http to loopback where that is allowed")]
    Plaintext,
    /// A header that the host or the HTTP library sets, or one that no request may carry.
    #[error("a header may not be set by a guest")]
    Header,
    /// The guest set the header that carries the credential, or another header that identifies the
    /// caller.
    #[error(
        "a header says who asks, beside the credential; a tool that sends a secret in this header writes {{{{secret:NAME}}}} \
         in it, without spaces"
    )]
    CredentialHeader,
    /// The method is not one of those that guests may use.
    #[error("the method must be GET, HEAD, POST, PUT, PATCH or DELETE")]
    Method,
    /// The port is not among `egress.ports` (egress rule R6).
    #[error("the port is not open: the operator lists ports in egress.ports")]
    Port,
    /// A guest used plain http to a destination other than loopback, or loopback is not allowed
    /// (egress rule R5).
    #[error("plain http is open to loopback only, and only with egress.allow_plaintext_loopback")]
    PlaintextGuest,
    /// The host is, or resolves to, an address that is not open to guests (egress rule R12).
    #[error(
        "the host leads to an address that is not open: the operator lists ranges in egress.allow_private"
    )]
    Closed,
    /// A placeholder is malformed, stands outside of a header's value, is the fifth of the request,
    /// or names a secret that is not released with the request (egress rule R2).
    #[error("a placeholder is malformed, in the wrong place or names a secret that is not granted")]
    Placeholder,
    /// The request already has the header, query parameter or JSON member that the secret is for
    /// (egress rules R3 and R15).
    #[error("the place for a secret is taken")]
    PlaceTaken,
    /// The body is not JSON, or has no object at the place where the secret's member belongs
    /// (egress rule R3).
    #[error("the body is not JSON with an object at the place for a secret")]
    JsonBody,
    /// More than 16 secrets for one request, see [`SECRETS_MAX`](crate::SECRETS_MAX).
    #[error("there are too many secrets for one request")]
    TooManySecrets,
    /// The secret was released to another host, or the host of the request is an IP address
    /// (egress rules R4 and R7).
    #[error("the secret is not bound to this host")]
    SecretHost,
    /// The secret has a control character, a character outside ASCII, or
    /// a space at an end (egress rule R14).
    #[error("the secret cannot be sent in a header: is there a line break or a space at its end?")]
    SecretNotHeaderSafe,
    /// The secret is empty or too long: a header value, with the text around the secret, takes 16
    /// KiB (egress rule R17).
    #[error("the secret is empty or too long for its place")]
    SecretLength,
    /// More than 100 headers, or a header value longer than 16 KiB.
    #[error("there are too many headers, or one is too long")]
    HeadersTooLarge,
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::Refused { reason }
    }
}

/// The resolver's error for an address that a rule closes. It passes through the HTTP library's
/// error type, where [`reduce`] finds it again.
#[derive(Debug, thiserror::Error)]
#[error("address refused")]
pub(crate) struct AddressRefused(pub(crate) Reason);

/// Maps a connection error to one of ours. The error's text is dropped because it may contain the
/// URL.
pub(crate) fn reduce(error: &(dyn StdError + 'static)) -> Error {
    let mut cause = Some(error);
    let mut known = None;
    while let Some(current) = cause {
        if let Some(AddressRefused(reason)) = current.downcast_ref() {
            return Error::Refused { reason: *reason };
        }
        if let Some(unreached) = current.downcast_ref::<Unreached>() {
            return Error::Unreachable(*unreached);
        }
        // A TLS error decides at once. An I/O error is only remembered: a more exact cause may
        // follow.
        if let Some(error) = innermost(current).downcast_ref::<rustls::Error>() {
            return of_tls(error);
        }
        known = current.downcast_ref::<io::Error>().map(|error| of_system(error.kind())).or(known);
        cause = current.source();
    }
    Error::Unreachable(known.unwrap_or(Unreached::Closed))
}

fn of_system(kind: io::ErrorKind) -> Unreached {
    match kind {
        io::ErrorKind::ConnectionRefused => Unreached::Refused,
        io::ErrorKind::TimedOut => Unreached::TimedOut,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => Unreached::NoRoute,
        _ => Unreached::Closed,
    }
}

fn of_tls(error: &rustls::Error) -> Error {
    use rustls::CertificateError as Certificate;
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::NoCertificatesPresented => return Error::Untrusted(Untrusted::Other),
        _ => return Error::Unreachable(Unreached::NoTls),
    };
    Error::Untrusted(match certificate {
        // `BadSignature`: the issuer has the same name as one of our roots, but another key.
        Certificate::UnknownIssuer | Certificate::BadSignature => Untrusted::UnknownRoot,
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => Untrusted::WrongName,
        Certificate::Expired | Certificate::ExpiredContext { .. } => Untrusted::Expired,
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => Untrusted::NotYetValid,
        _ => Untrusted::Other,
    })
}

/// Unwraps I/O errors. A TLS error is wrapped in an `io::Error`, whose `source` skips the wrapped
/// error itself.
fn innermost<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error
}
