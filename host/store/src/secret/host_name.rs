//! Exact host names that secrets are bound to (RFC 1035, RFC 1123, RFC 5891).
//!
//! The parser produces the canonical spelling of a name. The hosts of a secret and the host of a
//! request are both parsed here and then compared byte by byte. No other code changes the case or
//! removes a final dot.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// Longest name before normalisation, in characters: 253 and the final dot of the root.
const GIVEN_CHARS_MAX: usize = 254;
/// Longest name, in bytes.
const BYTES_MAX: usize = 253;
/// Longest label, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// Prefix of an encoded (Punycode) label.
const ENCODED: &str = "xn--";
/// Largest number of hosts of one secret, counted before duplicates are removed.
const HOSTS_MAX: usize = 100;

/// A host name in canonical spelling: lower case, no final dot, only letters, digits and hyphens,
/// never an IP address. Clones share the text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(Arc<str>);

/// Text that is not an exact host name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an exact host name")]
pub struct HostNameError;

impl HostName {
    /// A name from a stored row, which was parsed before it was stored. The caller must check the
    /// row's MAC.
    pub(crate) fn from_row(name: &str) -> HostName {
        HostName(name.into())
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    /// Converts to lower case and removes one final dot; everything else must be valid as given.
    /// Refused are names that a URL parser takes for an IPv4 address, and encoded names whose
    /// Unicode form does not encode back to the same name.
    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        if text.len() > GIVEN_CHARS_MAX || !text.is_ascii() {
            return Err(HostNameError);
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let good = name.len() <= BYTES_MAX
            && name.split('.').all(is_label)
            && !name.rsplit('.').next().is_some_and(is_number)
            && has_one_spelling(&name);
        if good { Ok(HostName(name.into())) } else { Err(HostNameError) }
    }
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// True for a last label with which a URL parser reads the whole name as an IPv4 address: decimal
/// or octal digits, or `0x` followed by any number of hexadecimal digits, even none.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// False for encoded labels (`xn--`) that cannot be decoded, or do not encode back to themselves.
fn has_one_spelling(name: &str) -> bool {
    let mut encoded = name.split('.').filter(|label| label.starts_with(ENCODED)).peekable();
    if encoded.peek().is_none() {
        return true;
    }
    // Existing host names have hyphens in places that UTS 46 reserves for encoded labels, so that
    // rule is applied to encoded labels only. The rule on writing directions spans labels, so it is
    // applied to the whole name.
    let returns = |text: &str, hyphens| {
        let again = Uts46::new().to_ascii(text.as_bytes(), AsciiDenyList::STD3, hyphens, DnsLength::Verify);
        again.is_ok_and(|again| again == text)
    };
    encoded.all(|label| returns(label, Hyphens::Check)) && returns(name, Hyphens::CheckFirstLast)
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hosts of one secret: 1 to 100 names without duplicates, in the given order. Clones share
/// them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts(Arc<[HostName]>);

/// Why a list cannot be the hosts of a secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostsError {
    /// The list is empty or has more than 100 entries, counted before duplicates are removed.
    #[error("a secret has 1 to 100 hosts")]
    Count,
    /// An entry is not an exact host name.
    #[error("hosts[{index}] is not an exact host name")]
    Host {
        /// Index of the entry.
        index: usize,
    },
}

impl Hosts {
    /// Parses the entries and removes duplicates.
    ///
    /// # Errors
    /// See [`HostsError`].
    pub fn parse<T: AsRef<str>>(entries: &[T]) -> Result<Hosts, HostsError> {
        if !(1..=HOSTS_MAX).contains(&entries.len()) {
            return Err(HostsError::Count);
        }
        let mut hosts: Vec<HostName> = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let host = entry.as_ref().parse().map_err(|HostNameError| HostsError::Host { index })?;
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        Ok(Hosts(hosts.into()))
    }

    /// The hosts of a stored row. The caller must check the row's MAC.
    pub(crate) fn from_row(names: Vec<HostName>) -> Hosts {
        Hosts(names.into())
    }

    /// The names, in order.
    pub fn as_slice(&self) -> &[HostName] {
        &self.0
    }

    /// Whether one of them equals this name.
    pub fn contains(&self, host: &HostName) -> bool {
        self.0.contains(host)
    }
}

#[cfg(test)]
mod tests;
