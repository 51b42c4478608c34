//! A range of IP addresses in CIDR notation, as in `egress.allow_private`.

use std::{fmt, net::IpAddr, str::FromStr};

/// Addresses that share a prefix: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    network: IpAddr,
    prefix_bits: u8,
}

/// Why a text is not a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The part before the slash is not an IP address, or is an IPv4-mapped IPv6 address.
    #[error("not an IP address")]
    Address,
    /// The part after the slash is not a number that fits the address.
    #[error("the prefix length must be a number from 0 to 32 (IPv4) or 128 (IPv6)")]
    Prefix,
    /// The address has bits set to the right of the prefix, which is most likely a typing error.
    #[error("the address has bits set beyond the prefix")]
    HostBits,
}

impl IpRange {
    /// Returns whether the range contains the address. An IPv4-mapped IPv6 address counts as its
    /// IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                keep_v4(address.to_bits(), self.prefix_bits) == network.to_bits()
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                keep_v6(address.to_bits(), self.prefix_bits) == network.to_bits()
            }
            _ => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| RangeError::Address)?;
        if network.to_canonical() != network {
            return Err(RangeError::Address);
        }
        let bits_max = if network.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(digits) => parse_prefix(digits, bits_max)?,
        };
        let clean = match network {
            IpAddr::V4(v4) => keep_v4(v4.to_bits(), prefix_bits) == v4.to_bits(),
            IpAddr::V6(v6) => keep_v6(v6.to_bits(), prefix_bits) == v6.to_bits(),
        };
        if clean { Ok(Self { network, prefix_bits }) } else { Err(RangeError::HostBits) }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix_bits)
    }
}

/// Accepts digits only: `u8::from_str` would also accept a plus sign.
fn parse_prefix(digits: &str, bits_max: u8) -> Result<u8, RangeError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RangeError::Prefix);
    }
    digits.parse().ok().filter(|bits| *bits <= bits_max).ok_or(RangeError::Prefix)
}

fn keep_v4(bits: u32, prefix_bits: u8) -> u32 {
    bits & u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0)
}

fn keep_v6(bits: u128, prefix_bits: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn range_holds_exactly_its_prefix() {
        let table = [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "::ffff:10.1.2.3", false),
        ];
        for (range, address, inside) in table {
            let range: IpRange = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), inside, "{range} {address}");
        }
    }

    #[test]
    fn range_refuses_anything_but_cidr() {
        let table = [
            ("", RangeError::Address),
            ("10.0.0/8", RangeError::Address),
            ("api.test/8", RangeError::Address),
            ("::ffff:10.0.0.0/104", RangeError::Address),
            ("10.0.0.0/", RangeError::Prefix),
            ("10.0.0.0/33", RangeError::Prefix),
            ("10.0.0.0/+8", RangeError::Prefix),
            ("10.0.0.0/8/8", RangeError::Prefix),
            ("fd00::/129", RangeError::Prefix),
            ("10.0.0.1/8", RangeError::HostBits),
            ("fd00::1/64", RangeError::HostBits),
        ];
        for (text, error) in table {
            assert_eq!(text.parse::<IpRange>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn range_never_panics(text in "[0-9a-f:./]{0,24}") {
            let _outcome = text.parse::<IpRange>();
        }

        #[test]
        fn range_reads_back_what_it_prints(bits in any::<u32>(), prefix_bits in 0_u8..=32) {
            let network = IpAddr::V4(keep_v4(bits, prefix_bits).into());
            let range: IpRange = format!("{network}/{prefix_bits}").parse().unwrap();
            prop_assert_eq!(range.to_string().parse::<IpRange>(), Ok(range));
            prop_assert!(range.contains(IpAddr::V4(bits.into())));
        }
    }
}
