use proptest::prelude::*;

use super::{AddressClass::*, *};

fn class(text: &str) -> AddressClass {
    AddressClass::of(text.parse().unwrap())
}

#[test]
fn ipv4_addresses_have_their_class() {
    let table = [
        // The first and last address of every block, and their neighbours outside.
        (Unspecified, &["0.0.0.0"][..]),
        (Reserved, &["0.0.0.1", "0.255.255.255"]),
        (Public, &["1.0.0.0", "9.255.255.255", "11.0.0.0", "8.8.8.8", "93.184.216.34"]),
        (Private, &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255"]),
        (Public, &["172.15.255.255", "172.32.0.0"]),
        (Private, &["192.168.0.0", "192.168.255.255"]),
        (Public, &["192.167.255.255", "192.169.0.0"]),
        (CarrierNat, &["100.64.0.0", "100.127.255.255"]),
        (Public, &["100.63.255.255", "100.128.0.0"]),
        (Loopback, &["127.0.0.0", "127.0.0.1", "127.1.2.3", "127.255.255.255"]),
        (Public, &["126.255.255.255", "128.0.0.0"]),
        (LinkLocal, &["169.254.0.0", "169.254.169.253", "169.254.255.255"]),
        (Public, &["169.253.255.255", "169.255.0.0"]),
        (Reserved, &["192.0.0.0", "192.0.0.255", "192.88.99.0", "192.88.99.255"]),
        (Public, &["192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0"]),
        (Documentation, &["192.0.2.0", "192.0.2.255", "198.51.100.0", "198.51.100.255"]),
        (Documentation, &["203.0.113.0", "203.0.113.255", "198.18.0.0", "198.19.255.255"]),
        (Public, &["198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.114.0"]),
        (Multicast, &["224.0.0.0", "239.255.255.255"]),
        (Public, &["223.255.255.255"]),
        (Reserved, &["240.0.0.0", "255.255.255.254", "255.255.255.255"]),
    ];
    for (expected, texts) in table {
        for text in texts {
            assert_eq!(class(text), expected, "{text}");
        }
    }
}

#[test]
fn ipv6_addresses_have_their_class() {
    let table = [
        (Unspecified, &["::"][..]),
        (Loopback, &["::1"]),
        (Private, &["fc00::", "fd00::1", "fdff:ffff::1"]),
        (LinkLocal, &["fe80::1", "febf::1"]),
        (Reserved, &["fec0::1", "fe00::1"]),
        (Multicast, &["ff00::", "ff02::1", "ffff::1"]),
        (Documentation, &["2001:db8::1", "2001:db8:ffff::1", "2001:2::1", "3fff::1", "3fff:fff::1"]),
        (Reserved, &["2001:1::1", "2001:10::1", "2001:20::1", "2001:1ff::1", "100::1", "5f00::1", "4000::1"]),
        (
            Public,
            &["2000::1", "2001:200::1", "2606:4700::1111", "2a00:1450::1", "3fff:1000::1", "2001:db9::1"],
        ),
    ];
    for (expected, texts) in table {
        for text in texts {
            assert_eq!(class(text), expected, "{text}");
        }
    }
}

#[test]
fn ipv4_inside_ipv6_is_recognised() {
    let table = [
        // The mapped form has the class of the IPv4 address itself.
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:10.0.0.1", Private),
        ("::ffff:0.0.0.0", Unspecified),
        ("::ffff:8.8.8.8", Public),
        // The other forms are dialled through an unknown translator.
        ("::127.0.0.1", Translated),
        ("::2", Translated),
        ("::8.8.8.8", Translated),
        ("::ffff:0:127.0.0.1", Translated),
        ("64:ff9b::8.8.8.8", Translated),
        ("64:ff9b::127.0.0.1", Translated),
        ("64:ff9b:1::10.0.0.1", Translated),
        ("2002:7f00:1::1", Translated),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Translated),
    ];
    for (text, expected) in table {
        assert_eq!(class(text), expected, "{text}");
    }
}

#[test]
fn metadata_services_are_recognized_in_every_form() {
    let texts = [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.0.23",
        "169.254.42.42",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
        "fd00:c1::a9fe:a9fe",
        "fe80::a9fe:a9fe",
        "::ffff:169.254.169.254",
        "::ffff:100.100.100.200",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::169.254.169.254",
        // RFC 6052 with prefix lengths of 48 bits and others: octet 8 is skipped.
        "64:ff9b:1:a9fe:a9:fe00::",
        "2a00:1:a9fe:a9fe::",
        "2a00:1:a9:fea9:fe::",
        "2a00:1:2:a9:fe:a9fe::",
        "2a00:1:2:3:a9:fea9:fe00:0",
        "2a00:1:2:3:4:5:a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2002:a9fe:a9fe:1:2:3:4:5",
        // Teredo: the server's address is plain, the client's is inverted.
        "2001:0:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:5601:5601",
        "fe80::5efe:a9fe:a9fe",
    ];
    for text in texts {
        assert_eq!(class(text), Metadata, "{text}");
    }
}

proptest! {
    #[test]
    fn mapped_addresses_have_the_class_of_their_ipv4_address(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from(bits);
        prop_assert_eq!(AddressClass::of(v4.to_ipv6_mapped().into()), AddressClass::of(v4.into()));
    }

    #[test]
    fn metadata_is_recognised_behind_any_prefix(prefix in any::<u128>(), index in 0..METADATA_V4.len()) {
        let inside = u128::from(METADATA_V4[index].to_bits());
        let outside = Ipv6Addr::from((prefix & !u128::from(u32::MAX)) | inside);
        prop_assert_eq!(AddressClass::of(outside.into()), Metadata);
    }

    #[test]
    fn ipv6_is_public_only_in_global_unicast(bits in any::<u128>()) {
        let address = Ipv6Addr::from(bits);
        if AddressClass::of(address.into()) == Public && address.to_ipv4_mapped().is_none() {
            prop_assert_eq!(address.segments()[0] >> 13, 1);
        }
    }

    #[test]
    fn ipv4_agrees_with_the_standard_library(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from(bits);
        let class = AddressClass::of(v4.into());
        prop_assume!(class != Metadata);
        prop_assert_eq!(v4.is_loopback(), class == Loopback);
        prop_assert_eq!(v4.is_private(), class == Private);
        prop_assert_eq!(v4.is_link_local(), class == LinkLocal);
        prop_assert_eq!(v4.is_multicast(), class == Multicast);
        prop_assert_eq!(v4.is_unspecified(), class == Unspecified);
    }
}
