//! What kind of place an IP address is.
//!
//! Pure and total: every address has exactly one class, taken from the IANA special-purpose registries and
//! from the clouds' documentation of their metadata services. An IPv6 address that carries an IPv4 address
//! is looked at through it, because a translator or the kernel will dial the address inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// The class of an address, from the point of view of a host that must not be talked into dialling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// Reachable by anybody.
    Public,
    /// This machine.
    Loopback,
    /// A network of the operator's own: RFC 1918 and IPv6 unique local addresses.
    Private,
    /// One link only: 169.254.0.0/16 and fe80::/10.
    LinkLocal,
    /// The carrier's side of a large translator, 100.64.0.0/10 (RFC 6598).
    CarrierNat,
    /// Set aside for examples and benchmarks; nobody should be there.
    Documentation,
    /// Many receivers.
    Multicast,
    /// "This host" in an answer: 0.0.0.0 and ::, which Linux dials as loopback.
    Unspecified,
    /// An IPv6 form that carries an IPv4 address to a translator or tunnel: NAT64, 6to4, Teredo and kin.
    Translated,
    /// Not assigned for ordinary use.
    Reserved,
    /// A cloud's instance metadata or credential service, in whatever form it is written.
    Metadata,
}

impl AddressClass {
    /// Classifies an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }
}

/// Services that hand credentials to whoever can reach them. Most clouds use 169.254.169.254; the others
/// are Amazon's container credentials (170.2) and pod identity (170.23), Tencent, Scaleway, Alibaba,
/// Oracle's former address and Azure's wire server.
const METADATA_V4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The same over IPv6: Amazon (instance and pod identity), Google, Scaleway, Oracle, OpenStack.
const METADATA_V6: [Ipv6Addr; 6] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042),
    Ipv6Addr::new(0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

fn of_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.octets() {
        [0, 0, 0, 0] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        [100, 64..=127, ..] => AddressClass::CarrierNat,
        [192, 0, 2, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            AddressClass::Documentation
        }
        [224..=239, ..] => AddressClass::Multicast,
        // 192.88.99/24 was the 6to4 relay (RFC 7526); 192.0.0/24 belongs to protocols.
        [0, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    // The kernel turns the mapped form into plain IPv4, so it has the class of what is inside.
    if let Some(mapped) = address.to_ipv4_mapped() {
        return of_v4(mapped);
    }
    if METADATA_V6.contains(&address) || carries_metadata(address) {
        return AddressClass::Metadata;
    }
    if is_translated(address) {
        return AddressClass::Translated;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        [0x2001, 0x0db8, ..] | [0x2001, 0x0002, 0, ..] | [0x3fff, 0..=0x0fff, ..] => {
            AddressClass::Documentation
        }
        // RFC 2928 protocol assignments; none of them is a server somebody would name.
        [0x2001, 0..=0x01ff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Is this one of the prefixes whose packets end up at an IPv4 address?
fn is_translated(address: Ipv6Addr) -> bool {
    match address.segments() {
        // :: and ::1 are in the prefix of the deprecated compatible form (RFC 4291), and are not meant by it.
        [0, 0, 0, 0, 0, 0, 0, 0..=1] => false,
        [0, 0, 0, 0, 0, 0, ..] => true,
        // ::ffff:0:a.b.c.d, stateless translation (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0, ..] => true,
        // NAT64, well known and for local use (RFC 6052, RFC 8215).
        [0x0064, 0xff9b, 0, 0, 0, 0, ..] | [0x0064, 0xff9b, 1, ..] => true,
        // Teredo (RFC 4380) and 6to4 (RFC 3056).
        [0x2001, 0, ..] | [0x2002, ..] => true,
        _ => false,
    }
}

/// Does any place where an IPv4 address may be written inside an IPv6 one hold a metadata service?
///
/// All places are read whatever the prefix: a network may translate behind a prefix of its own, with any of
/// the six lengths of RFC 6052, and no server is lost by refusing the few addresses that match by chance.
fn carries_metadata(address: Ipv6Addr) -> bool {
    let [_, _, c, d, e, f, g, h, _, j, k, l, m, n, o, p] = address.octets();
    let places = [
        [m, n, o, p],     // RFC 6052 /96, the compatible form, ISATAP, link-local forms
        [j, k, l, m],     // RFC 6052 /64; octet 8 is skipped by all shorter prefixes
        [h, j, k, l],     // /56
        [g, h, j, k],     // /48
        [f, g, h, j],     // /40
        [e, f, g, h],     // /32, and the server of a Teredo address
        [c, d, e, f],     // 6to4
        [!m, !n, !o, !p], // the client of a Teredo address
    ];
    places.into_iter().any(|octets| METADATA_V4.contains(&Ipv4Addr::from(octets)))
}
