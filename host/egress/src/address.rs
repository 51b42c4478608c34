//! Classifies IP addresses, so that rules can say which classes may be dialled.
//!
//! Every address has exactly one class. The ranges come from the IANA special-purpose registries
//! and from cloud vendors' documentation of their metadata services. An IPv4-mapped IPv6 address
//! has the class of its IPv4 address, because the kernel dials that one. Other IPv6 forms that
//! embed an IPv4 address have a class of their own, because a translator would dial an address that
//! is not checked here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// The class of an address, for a host that must not be tricked into dialling internal services
/// (SSRF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// A public address.
    Public,
    /// This machine: 127.0.0.0/8 and ::1.
    Loopback,
    /// Private networks: RFC 1918 and IPv6 unique local addresses (RFC 4193).
    Private,
    /// Link-local: 169.254.0.0/16 and fe80::/10.
    LinkLocal,
    /// Shared address space of carrier-grade NAT, 100.64.0.0/10 (RFC 6598).
    CarrierNat,
    /// Reserved for documentation and benchmarks. No public server has such an address.
    Documentation,
    /// Multicast groups.
    Multicast,
    /// 0.0.0.0 and ::, which Linux dials as loopback.
    Unspecified,
    /// An IPv6 address that embeds an IPv4 address for a translator or tunnel, such as NAT64, 6to4
    /// and Teredo.
    Translated,
    /// Reserved, or not assigned for ordinary use.
    Reserved,
    /// A cloud's instance metadata or credential service, in any notation.
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

/// IPv4 addresses of services that give credentials to every caller that can reach them. Most
/// clouds use 169.254.169.254. The others are Amazon's container credentials (170.2) and pod
/// identity (170.23), Tencent, Scaleway, Alibaba, Oracle's former address and Azure's wire server.
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

/// IPv6 addresses of such services: Amazon (instance metadata and pod identity), Google, Scaleway,
/// Oracle, OpenStack.
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
        // 192.88.99.0/24 was the 6to4 relay (RFC 7526); 192.0.0.0/24 is for protocol assignments.
        [0, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    // The kernel dials the mapped form (::ffff:a.b.c.d) as plain IPv4, so it has the class of its
    // IPv4 address.
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
        // Protocol assignments (RFC 2928). None of them is used for ordinary servers.
        [0x2001, 0..=0x01ff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Returns whether packets to this address end up at an IPv4 address.
fn is_translated(address: Ipv6Addr) -> bool {
    match address.segments() {
        // :: and ::1 lie in the prefix of the deprecated IPv4-compatible form (RFC 4291), but are
        // not of that form.
        [0, 0, 0, 0, 0, 0, 0, 0..=1] => false,
        [0, 0, 0, 0, 0, 0, ..] => true,
        // ::ffff:0:a.b.c.d, stateless translation (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0, ..] => true,
        // NAT64: the well-known prefix (RFC 6052) and the one for local use (RFC 8215).
        [0x0064, 0xff9b, 0, 0, 0, 0, ..] | [0x0064, 0xff9b, 1, ..] => true,
        // Teredo (RFC 4380) and 6to4 (RFC 3056).
        [0x2001, 0, ..] | [0x2002, ..] => true,
        _ => false,
    }
}

/// Returns whether an IPv6 address embeds the IPv4 address of a metadata service.
///
/// All positions are checked whatever the prefix: a network may translate under a prefix of its
/// own, with any of the six lengths of RFC 6052. Few other addresses match by chance, and refusing
/// them does no harm.
fn carries_metadata(address: Ipv6Addr) -> bool {
    let [_, _, c, d, e, f, g, h, _, j, k, l, m, n, o, p] = address.octets();
    let embedded = [
        [m, n, o, p],     // RFC 6052 /96, the compatible form, ISATAP, link-local forms
        [j, k, l, m],     // RFC 6052 /64; octet 8 is skipped by all shorter prefixes
        [h, j, k, l],     // /56
        [g, h, j, k],     // /48
        [f, g, h, j],     // /40
        [e, f, g, h],     // /32, and the server of a Teredo address
        [c, d, e, f],     // 6to4
        [!m, !n, !o, !p], // the client of a Teredo address
    ];
    embedded.into_iter().any(|octets| METADATA_V4.contains(&Ipv4Addr::from(octets)))
}
