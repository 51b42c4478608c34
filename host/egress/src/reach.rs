//! Which addresses a provider's origin may resolve to.
//!
//! Each reach has its own connection pool: a connection that was dialled under a wider rule is
//! never used for a request under a narrower one.

use std::net::IpAddr;

use crate::{AddressClass, Reason};

/// The addresses that an origin may resolve to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowedAddresses {
    /// An `https` origin: all addresses but metadata services. The operator chose the name and the
    /// certificate proves it.
    Anywhere,
    /// A plain `http` origin without a credential: loopback and private addresses.
    Local,
    /// A plain `http` origin with a credential: loopback only.
    Loopback,
}

impl AllowedAddresses {
    /// # Errors
    ///
    /// The rule that closes the address.
    pub(crate) fn check(self, address: IpAddr) -> Result<(), Reason> {
        let class = AddressClass::of(address);
        if class == AddressClass::Metadata {
            return Err(Reason::Metadata);
        }
        match self {
            Self::Anywhere => Ok(()),
            Self::Local if matches!(class, AddressClass::Loopback | AddressClass::Private) => Ok(()),
            Self::Local => Err(Reason::Address),
            Self::Loopback if class == AddressClass::Loopback => Ok(()),
            Self::Loopback => Err(Reason::Plaintext),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reach_admits_its_classes_only() {
        let table = [
            ("127.0.0.1", Ok(()), Ok(()), Ok(())),
            ("::1", Ok(()), Ok(()), Ok(())),
            ("10.1.2.3", Ok(()), Ok(()), Err(Reason::Plaintext)),
            ("fd12::1", Ok(()), Ok(()), Err(Reason::Plaintext)),
            ("203.0.113.1", Ok(()), Err(Reason::Address), Err(Reason::Plaintext)),
            ("93.184.216.34", Ok(()), Err(Reason::Address), Err(Reason::Plaintext)),
            ("0.0.0.0", Ok(()), Err(Reason::Address), Err(Reason::Plaintext)),
            ("64:ff9b::7f00:1", Ok(()), Err(Reason::Address), Err(Reason::Plaintext)),
        ];
        for (text, anywhere, local, loopback) in table {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(AllowedAddresses::Anywhere.check(address), anywhere, "{text}");
            assert_eq!(AllowedAddresses::Local.check(address), local, "{text}");
            assert_eq!(AllowedAddresses::Loopback.check(address), loopback, "{text}");
        }
    }

    #[test]
    fn no_reach_admits_metadata() {
        for text in ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"] {
            for reach in [AllowedAddresses::Anywhere, AllowedAddresses::Local, AllowedAddresses::Loopback] {
                assert_eq!(reach.check(text.parse().unwrap()), Err(Reason::Metadata), "{text}");
            }
        }
    }
}
