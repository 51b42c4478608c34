//! Exact host names that secrets are bound to (interface.md 4.1, RFC 1035, RFC 1123, RFC 5891).
//!
//! The parser here makes the one spelling of a name. A secret's hosts and the host that a request is about to
//! go to both pass through it and are then compared byte by byte; nobody else lowers a case or drops a dot.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// The longest name before normalisation, in characters: 253 and the root's dot.
const GIVEN_CHARS_MAX: usize = 254;
/// The longest name, in bytes.
const BYTES_MAX: usize = 253;
/// The longest label, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// What an encoded label begins with.
const ENCODED: &str = "xn--";
/// Most entries of one secret, counted before duplicates go.
const HOSTS_MAX: usize = 100;

/// A host name in its one spelling: lower case, no root dot, letters, digits and hyphens, never an address. Clones
/// share it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostName(Arc<str>);

/// Text that is not an exact host name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an exact host name")]
pub struct HostNameError;

impl HostName {
    /// A name out of a row, for whoever checks the row's MAC: it was parsed before it was stored.
    pub(super) fn from_row(name: &str) -> HostName {
        HostName(name.into())
    }

    /// The canonical name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    /// Lowers the case and takes one root dot away; everything else must be right as it stands. What a URL
    /// parser would take for an address is none, and neither is a name that has a second spelling in Unicode
    /// which does not come back to it.
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

/// True for a last label that makes a URL parser read the whole name as an IPv4 address: decimal and octal
/// digits, or `0x` and hexadecimal digits, of which there may be none.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// False for encoded labels (`xn--`) that do not decode, or do not encode back to themselves.
fn has_one_spelling(name: &str) -> bool {
    let mut encoded = name.split('.').filter(|label| label.starts_with(ENCODED)).peekable();
    if encoded.peek().is_none() {
        return true;
    }
    // Names of hosts that exist have hyphens where only encoded labels should; so the rule for hyphens holds
    // for encoded labels, and the rule for directions of writing, which spans labels, for the whole name.
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

/// The hosts of one secret: 1 to 100 names, each once, in the order of first appearance. Clones share them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosts(Arc<[HostName]>);

/// A list of hosts that cannot be a secret's.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostsError {
    /// None, or more than 100, counted before duplicates go.
    #[error("a secret has 1 to 100 hosts")]
    Count,
    /// An entry is no exact host name.
    #[error("hosts[{index}] is not an exact host name")]
    Host {
        /// Which.
        index: usize,
    },
}

impl Hosts {
    /// Parses the entries and drops duplicates.
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

    /// The names of a row, in the same way.
    pub(super) fn from_row(names: Vec<HostName>) -> Hosts {
        Hosts(names.into())
    }

    /// The names, in order.
    pub fn as_slice(&self) -> &[HostName] {
        &self.0
    }

    /// Whether the name is one of them, byte for byte.
    pub fn contains(&self, host: &HostName) -> bool {
        self.0.contains(host)
    }
}

#[cfg(test)]
mod tests;
