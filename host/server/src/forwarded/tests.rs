use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn proxies() -> Vec<IpRange> {
    ["10.0.0.0/8", "fd00::/8"].map(|range| range.parse().unwrap()).into()
}

/// The client of a request that came from the proxy 10.0.0.1.
fn client_by(headers: &[(HeaderName, &str)]) -> String {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.clone(), HeaderValue::from_str(value).unwrap());
    }
    client(ip("10.0.0.1"), &map, &proxies()).to_string()
}

#[test]
fn client_is_the_rightmost_address_that_is_not_a_proxy() {
    for (list, client) in [
        ("192.0.2.1", "192.0.2.1"),
        ("198.51.100.9, 192.0.2.1", "192.0.2.1"),
        ("198.51.100.9, 192.0.2.1, 10.1.2.3,fd00::7", "192.0.2.1"),
        ("not an address, 192.0.2.1, 10.1.2.3", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:192.0.2.1, ::ffff:10.1.2.3", "192.0.2.1"),
        // Every address is a proxy.
        ("10.7.7.7, 10.1.2.3", "10.7.7.7"),
    ] {
        assert_eq!(client_by(&[(X_FORWARDED_FOR, list)]), client, "{list}");
    }
    let lines =
        [(X_FORWARDED_FOR, "198.51.100.9"), (X_FORWARDED_FOR, "192.0.2.1"), (X_FORWARDED_FOR, "10.2.2.2")];
    assert_eq!(client_by(&lines), "192.0.2.1");
}

#[test]
fn malformed_headers_give_the_peer_address() {
    for list in
        ["", "unknown", "192.0.2.1, ", "192.0.2.1, unknown, 10.1.2.3", "192.0.2.1;x", "1.2.3", "192.0.2.1 x"]
    {
        assert_eq!(client_by(&[(X_FORWARDED_FOR, list)]), "10.0.0.1", "{list}");
    }
    for list in [
        "",
        "192.0.2.1",
        "for=unknown",
        "for=_hidden",
        "proto=https",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1, proto=https",
        "for=\"192.0.2.1",
        "for",
    ] {
        assert_eq!(client_by(&[(FORWARDED, list)]), "10.0.0.1", "{list}");
    }
    assert_eq!(client_by(&[]), "10.0.0.1");
    let binary =
        HeaderMap::from_iter([(X_FORWARDED_FOR, HeaderValue::from_bytes(b"192.0.2.1\xff").unwrap())]);
    assert_eq!(client(ip("10.0.0.1"), &binary, &proxies()), ip("10.0.0.1"));
}

#[test]
fn forwarded_wins_over_x_forwarded_for() {
    for (list, client) in [
        ("for=192.0.2.1", "192.0.2.1"),
        ("For=\"[2001:db8::1]:4711\"; proto=https ;by=10.0.0.9", "2001:db8::1"),
        (
            "for=198.51.100.9;host=\"a,b\", for=192.0.2.1;host=\"x, for=203.0.113.1\" , for=10.1.2.3",
            "192.0.2.1",
        ),
        ("for=192.0.2.1;host=\"x;for=203.0.113.1\"", "192.0.2.1"),
        // A quote that a client has left open does not hide what a proxy has appended.
        ("for=\"198.51.100.9, for=192.0.2.1", "192.0.2.1"),
        ("for=\"198.51.100.9\\\", for=192.0.2.1", "192.0.2.1"),
        ("for=x;host=\"a\\\"b\", for=192.0.2.1", "192.0.2.1"),
    ] {
        assert_eq!(client_by(&[(X_FORWARDED_FOR, "203.0.113.5"), (FORWARDED, list)]), client, "{list}");
    }
}

#[test]
fn headers_of_untrusted_peers_are_ignored() {
    let headers = HeaderMap::from_iter([(X_FORWARDED_FOR, HeaderValue::from_static("192.0.2.1"))]);
    assert_eq!(client(ip("198.51.100.9"), &headers, &proxies()), ip("198.51.100.9"));
    assert_eq!(client(ip("10.0.0.1"), &headers, &[]), ip("10.0.0.1"));
    assert_eq!(client(ip("::ffff:10.0.0.1"), &headers, &proxies()), ip("192.0.2.1"));
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical());
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), v6]
}

proptest! {
    /// Whatever a client writes, only the addresses appended by proxies count.
    #[test]
    fn forged_headers_do_not_change_the_client_address(
        written in "[ -~\t]{0,40}",
        address in any_ip(),
        hops in 0..4_usize,
        is_forwarded: bool,
    ) {
        prop_assume!(!is_trusted(address, &proxies()));
        let (name, list) = if is_forwarded {
            let node = if address.is_ipv6() { format!("for=\"[{address}]:1\"") } else { format!("for={address}") };
            (FORWARDED, format!("{written}, {node};proto=http{}", ", for=10.0.0.7".repeat(hops)))
        } else {
            (X_FORWARDED_FOR, format!("{written}, {address}{}", ", 10.0.0.7".repeat(hops)))
        };
        prop_assert_eq!(client_by(&[(name, &list)]), address.to_string());
    }

    /// Any bytes give the peer or an address from the header.
    #[test]
    fn any_header_gives_an_address(value in prop::collection::vec(0x20_u8.., 0..64), is_forwarded: bool) {
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let text = value.to_str().unwrap_or_default().to_owned();
        let name = if is_forwarded { FORWARDED } else { X_FORWARDED_FOR };
        let peer = ip("10.0.0.1");
        let client = client(peer, &HeaderMap::from_iter([(name, value)]), &proxies());
        prop_assert!(client == peer || text.contains(['.', ':']), "{client} of {text}");
    }

    #[test]
    fn list_elements_are_split_at_commas(elements in prop::collection::vec("[a-z0-9.:]{0,8}", 1..6)) {
        let value = HeaderValue::try_from(elements.join(" ,\t")).unwrap();
        let read: Vec<&str> = from_the_right(&value).map(Option::unwrap).collect();
        prop_assert!(read.iter().rev().eq(elements.iter()));
    }
}
