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
    /// The name was not found, or there was no connection in time; nothing was sent.
    #[error("the server cannot be reached: {0}")]
    Unreachable(Unreached),
    /// The server's certificate is not acceptable; nothing was sent.
    #[error("the server's certificate is not trusted: {0}")]
    Untrusted(Untrusted),
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
        matches!(self, Self::Refused { .. } | Self::Unreachable(_) | Self::Untrusted(_))
    }
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// The name has no address.
    #[error("the name is unknown, it has no address")]
    UnknownName,
    /// The name servers did not say whether the name has an address.
    #[error("no name server answers")]
    NoNameServer,
    /// The machine is there, and no server listens on the port.
    #[error("the connection was refused, no server listens on this port")]
    Refused,
    /// No connection in the time for it.
    #[error("no connection within timeouts.connect_ms")]
    TimedOut,
    /// The system knows no way to the address.
    #[error("there is no route to its address")]
    NoRoute,
    /// The server did not do its part of a TLS handshake.
    #[error("the TLS handshake failed, does this port speak https?")]
    NoTls,
    /// The connection ended while it was made.
    #[error("the server closed the connection at once")]
    Closed,
}

/// Why a certificate is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is signed by an authority that is not among the roots.
    #[error("it is signed by an unknown root; egress.roots adds one")]
    UnknownRoot,
    /// It is for other names.
    #[error("it is not for this name")]
    WrongName,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not begun.
    #[error("it is not valid yet, is the clock of this machine right?")]
    NotYetValid,
    /// Anything else that is wrong with it.
    #[error("it is not acceptable")]
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
    let mut known = None;
    while let Some(current) = cause {
        if let Some(AddressRefused(reason)) = current.downcast_ref() {
            return Error::Refused { reason: *reason };
        }
        if let Some(unreached) = current.downcast_ref::<Unreached>() {
            return Error::Unreachable(*unreached);
        }
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
        // A root of the same name as one of ours, with another key.
        Certificate::UnknownIssuer | Certificate::BadSignature => Untrusted::UnknownRoot,
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => Untrusted::WrongName,
        Certificate::Expired | Certificate::ExpiredContext { .. } => Untrusted::Expired,
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => Untrusted::NotYetValid,
        _ => Untrusted::Other,
    })
}

/// TLS errors travel inside I/O errors, which leave what they wrap out of their chain of sources.
fn innermost<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error
}
