//! The operator's settings for outbound requests.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::IpRange;

/// The `[egress]` section of the configuration, checked, and the connect timeout.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// Destination ports that are open to guests' own requests, with or without a secret. The
    /// `base_url` of a provider has its own port, which is not checked against this list.
    pub ports: Vec<u16>,
    /// Root certificates in addition to the system's: PEM files, each with at least one
    /// certificate.
    pub roots: Vec<Vec<u8>>,
    /// Private, link-local and loopback ranges that guests' own requests may reach. Metadata
    /// services and this machine's non-loopback addresses stay closed even if a range contains
    /// them.
    pub allow_private: Vec<IpRange>,
    /// Whether a credential or a guest's own request may use plain `http://` to a loopback address.
    pub allow_plaintext_loopback: bool,
    /// Fixed DNS answers by host name, compared without regard to case. The address rules still
    /// apply to these answers.
    pub resolve: BTreeMap<String, Vec<IpAddr>>,
    /// Name servers that replace the system's. If any is given, the system's hosts file is not
    /// read.
    pub nameservers: Vec<SocketAddr>,
    /// Ports that this host itself listens on. Guests cannot reach them on loopback even if
    /// `allow_private` opens loopback: a guest must not call the host's own API.
    pub own_ports: Vec<u16>,
    /// Time limit for resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            ports: vec![443],
            roots: Vec::new(),
            allow_private: Vec::new(),
            allow_plaintext_loopback: false,
            resolve: BTreeMap::new(),
            nameservers: Vec::new(),
            own_ports: Vec::new(),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

/// Why an [`Egress`](crate::Egress) cannot be built from a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressConfigError {
    /// A file of `roots` is not PEM, contains no certificate, or contains a certificate that cannot
    /// be a root.
    #[error("roots[{index}] is not a PEM file of root certificates")]
    Root {
        /// Position of the file in `roots`, from 0.
        index: usize,
    },
    /// The TLS library refused its settings.
    #[error("TLS cannot be set up")]
    Tls,
    /// The HTTP client or the resolver refused its settings.
    #[error("the HTTP client cannot be set up")]
    Client,
}
