//! What the operator decides about requests to the outside.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::IpRange;

/// The `[egress]` section of the configuration, checked, and the connect timeout.
#[derive(Clone, Debug)]
pub struct EgressConfig {
    /// Ports that guests' own requests and releases may use. A `base_url` brings its own port.
    pub ports: Vec<u16>,
    /// Root certificates beside the system's: PEM files, each with at least one certificate.
    pub roots: Vec<Vec<u8>>,
    /// Ranges that are open to guests' own requests although they are private, of the link or loopback.
    /// Metadata services and this machine's other addresses stay closed.
    pub allow_private: Vec<IpRange>,
    /// May a credential, and a guest's own request, travel over `http://` to this machine?
    pub allow_plaintext_loopback: bool,
    /// Fixed answers by host name; names compare without regard to case. Address rules still apply.
    pub resolve: BTreeMap<String, Vec<IpAddr>>,
    /// Name servers to ask instead of the system's. The system's hosts file is not read then.
    pub nameservers: Vec<SocketAddr>,
    /// Ports that this host itself listens on: closed to guests on this machine, whatever else is open there.
    pub own_ports: Vec<u16>,
    /// The longest time to resolve, connect and agree on TLS, all together.
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

/// Why the door cannot be built from a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file of `roots` is not PEM, has no certificate in it, or one that cannot be a root.
    #[error("roots[{index}] is not a PEM file of root certificates")]
    Root {
        /// Its position in `roots`, from 0.
        index: usize,
    },
    /// The TLS library refused its settings.
    #[error("TLS cannot be set up")]
    Tls,
    /// The HTTP client or the resolver refused its settings.
    #[error("the HTTP client cannot be set up")]
    Client,
}
