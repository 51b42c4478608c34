//! How far requests to one origin may go.
//!
//! The connections of each reach live in a pool of their own: a connection that was dialled under a wider
//! rule is never taken for a request under a narrower one.

use std::net::IpAddr;

use crate::{AddressClass, Reason};

/// The addresses an origin may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// An `https` origin: the operator named it and its certificate proves it.
    Anywhere,
    /// A plain `http` origin without a credential.
    Local,
    /// A plain `http` origin with a credential.
    Loopback,
}

impl Reach {
    /// # Errors
    ///
    /// Says which rule closes the address.
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
            assert_eq!(Reach::Anywhere.check(address), anywhere, "{text}");
            assert_eq!(Reach::Local.check(address), local, "{text}");
            assert_eq!(Reach::Loopback.check(address), loopback, "{text}");
        }
    }

    #[test]
    fn no_reach_admits_metadata() {
        for text in ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"] {
            for reach in [Reach::Anywhere, Reach::Local, Reach::Loopback] {
                assert_eq!(reach.check(text.parse().unwrap()), Err(Reason::Metadata), "{text}");
            }
        }
    }
}
