//! Which addresses a connection may lead to.
//!
//! Checked twice per connection: for every address of the DNS answer before one is dialled, and for
//! the peer after connecting, before anything is sent (egress rule R11).

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
};

use crate::{AddressClass, EgressConfig, IpRange, Reason, reach::AllowedAddresses};

/// The rule of one connection pool.
#[derive(Clone)]
pub(crate) enum PoolRule {
    /// For requests to an origin that the operator configured.
    Origin(AllowedAddresses),
    /// For guests' requests to URLs of their choice (egress rule R12).
    Guest(Arc<GuestRule>),
}

/// Which addresses are open to guests.
pub(crate) struct GuestRule {
    allow_private: Vec<IpRange>,
    own_ports: Vec<u16>,
    /// For requests over plain http: only loopback is open.
    is_plaintext: bool,
}

impl PoolRule {
    pub(crate) fn guest(config: &EgressConfig, is_plaintext: bool) -> Self {
        Self::Guest(Arc::new(GuestRule {
            allow_private: config.allow_private.clone(),
            own_ports: config.own_ports.clone(),
            is_plaintext,
        }))
    }

    /// Same as [`Self::guest`] over https, but without the ranges of `allow_private`.
    pub(crate) fn public_guest(config: &EgressConfig) -> Self {
        Self::guest(&EgressConfig { allow_private: Vec::new(), ..config.clone() }, false)
    }

    /// # Errors
    ///
    /// The rule that closes the address.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Reason> {
        match self {
            Self::Origin(reach) => reach.check(address),
            Self::Guest(rule) => rule.check(address),
        }
    }

    /// Checks a connection that has been made, by its own address and its peer's.
    pub(crate) fn check_connected(&self, local: SocketAddr, peer: SocketAddr) -> Result<(), Reason> {
        self.check(peer.ip())?;
        match self {
            Self::Origin(_) => Ok(()),
            Self::Guest(rule) => rule.check_connected(local, peer),
        }
    }
}

impl GuestRule {
    fn check(&self, address: IpAddr) -> Result<(), Reason> {
        let address = address.to_canonical();
        let class = AddressClass::of(address);
        let is_open = match class {
            AddressClass::Metadata => return Err(Reason::Metadata),
            AddressClass::Loopback if self.is_plaintext => true,
            _ if self.is_plaintext => false,
            // A public address can belong to this machine, whose services are closed to guests.
            AddressClass::Public => !is_own(address),
            AddressClass::Loopback => self.is_allowed(address),
            AddressClass::Private
            | AddressClass::LinkLocal
            | AddressClass::CarrierNat
            | AddressClass::Documentation => self.is_allowed(address) && !is_own(address),
            AddressClass::Multicast
            | AddressClass::Unspecified
            | AddressClass::Translated
            | AddressClass::Reserved => false,
        };
        if is_open { Ok(()) } else { Err(Reason::Closed) }
    }

    fn check_connected(&self, local: SocketAddr, peer: SocketAddr) -> Result<(), Reason> {
        // A connection whose two addresses are equal goes to this machine. On loopback only the
        // host's own ports are closed here: `check` decides whether loopback is open at all.
        let (local, peer_address) = (local.ip().to_canonical(), peer.ip().to_canonical());
        let is_here = local == peer_address || peer_address.is_loopback();
        let is_closed = is_here && (!peer_address.is_loopback() || self.own_ports.contains(&peer.port()));
        if is_closed { Err(Reason::Closed) } else { Ok(()) }
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        self.allow_private.iter().any(|range| range.contains(address))
    }
}

/// Returns whether an address belongs to this machine. The kernel always has the current list: it
/// lets a socket be bound to own addresses only. With `ip_nonlocal_bind` it allows binding to any
/// address; then this returns false and [`GuestRule::check_connected`] decides by the connection's
/// own address.
fn is_own(address: IpAddr) -> bool {
    /// Addresses for documentation (RFC 5737, RFC 3849), which no machine has. If one can be bound,
    /// `ip_nonlocal_bind` is on.
    const NOBODYS: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 1)),
    ];
    // Any other error than "address not available" counts as bindable, to be on the safe side.
    let is_bindable = |address: IpAddr| {
        UdpSocket::bind((address, 0))
            .map_or_else(|error| error.kind() != io::ErrorKind::AddrNotAvailable, |_socket| true)
    };
    is_bindable(address)
        && NOBODYS.iter().all(|nobody| nobody.is_ipv4() != address.is_ipv4() || !is_bindable(*nobody))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(allow_private: &[&str], is_plaintext: bool) -> PoolRule {
        let allow_private = allow_private.iter().map(|range| range.parse().unwrap()).collect();
        let config = EgressConfig { allow_private, own_ports: vec![8080], ..EgressConfig::default() };
        PoolRule::guest(&config, is_plaintext)
    }

    fn check(rule: &PoolRule, address: &str) -> Result<(), Reason> {
        rule.check(address.parse().unwrap())
    }

    /// All ranges of egress rule R12.
    const CLOSED: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "::8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fdff::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "::ffff:0:127.0.0.1",
    ];

    const METADATA: &[&str] = &[
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "192.0.0.192",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
    ];

    #[test]
    fn special_ranges_are_closed_to_guests() {
        for address in CLOSED {
            assert_eq!(check(&guest(&[], false), address), Err(Reason::Closed), "{address}");
        }
        for address in ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert_eq!(check(&guest(&[], false), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn metadata_stays_closed_whatever_is_allowed() {
        for rule in [guest(&[], false), guest(&["0.0.0.0/0", "::/0"], false), guest(&["0.0.0.0/0"], true)] {
            for address in METADATA {
                assert_eq!(check(&rule, address), Err(Reason::Metadata), "{address}");
            }
        }
    }

    #[test]
    fn guests_with_any_host_reach_public_addresses_only() {
        let config = EgressConfig {
            allow_private: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
            ..EgressConfig::default()
        };
        let rule = PoolRule::public_guest(&config);
        for address in CLOSED {
            assert_eq!(check(&rule, address), Err(Reason::Closed), "{address}");
        }
        assert_eq!(check(&rule, "8.8.8.8"), Ok(()));
    }

    #[test]
    fn allowed_ranges_open_private_addresses_only() {
        let all = guest(&["0.0.0.0/0", "::/0"], false);
        for address in ["10.77.1.2", "192.168.77.2", "127.0.0.1", "::1", "fd12::77", "100.64.0.77"] {
            assert_eq!(check(&all, address), Ok(()), "{address}");
        }
        for address in ["0.0.0.0", "::", "224.0.0.1", "64:ff9b::808:808", "2002:808:808::", "240.0.0.1"] {
            assert_eq!(check(&all, address), Err(Reason::Closed), "{address}");
        }
        let one = guest(&["10.77.0.0/16"], false);
        assert_eq!(check(&one, "10.77.1.2"), Ok(()));
        assert_eq!(check(&one, "::ffff:10.77.1.2"), Ok(()));
        assert_eq!(check(&one, "10.78.1.2"), Err(Reason::Closed));
        assert_eq!(check(&one, "127.0.0.1"), Err(Reason::Closed));
    }

    #[test]
    fn plain_http_reaches_loopback_only() {
        let plain = guest(&["0.0.0.0/0", "::/0"], true);
        assert_eq!(check(&plain, "127.0.0.1"), Ok(()));
        assert_eq!(check(&plain, "::1"), Ok(()));
        for address in ["10.0.0.1", "8.8.8.8", "fd12::1"] {
            assert_eq!(check(&plain, address), Err(Reason::Closed), "{address}");
        }
    }

    #[test]
    fn own_addresses_and_listeners_are_closed() {
        // Loopback always belongs to this machine.
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("8.8.8.8".parse().unwrap()));
        let rule = guest(&["0.0.0.0/0"], false);
        let connected =
            |local: &str, peer: &str| rule.check_connected(local.parse().unwrap(), peer.parse().unwrap());
        assert_eq!(connected("10.0.0.1:5000", "10.0.0.2:443"), Ok(()));
        assert_eq!(connected("10.0.0.1:5000", "10.0.0.1:443"), Err(Reason::Closed));
        assert_eq!(connected("127.0.0.1:5000", "127.0.0.1:443"), Ok(()));
        assert_eq!(connected("127.0.0.1:5000", "127.0.0.1:8080"), Err(Reason::Closed));
        assert_eq!(connected("10.0.0.1:5000", "169.254.169.254:80"), Err(Reason::Metadata));
    }
}
