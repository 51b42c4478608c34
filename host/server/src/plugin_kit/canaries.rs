//! Canaries: values that stand for the secrets of a plugin while it is tried. They are random, so a
//! text that has one got it from a host that sent it back.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cofferdam_egress::ScrubSet;
use cofferdam_store::SecretName;
use memchr::memmem;
use uuid::Uuid;

/// Number of values that one [`ScrubSet`] searches for.
const VALUES_MAX: usize = 64;

/// What stands before and after the name of a secret in an answer.
const OPENING: &str = "{{secret:";
const CLOSING: &str = "}}";

/// A random value for each secret.
pub(super) struct Canaries {
    values: BTreeMap<SecretName, String>,
    searches: Vec<(Vec<SecretName>, ScrubSet)>,
}

impl Canaries {
    /// New values for these secrets.
    pub(super) fn new(names: impl IntoIterator<Item = SecretName>) -> Self {
        let value = || format!("canary-{}", Uuid::new_v4().simple());
        let values: BTreeMap<SecretName, String> = names.into_iter().map(|name| (name, value())).collect();
        let names: Vec<SecretName> = values.keys().cloned().collect();
        let search = |names: &[SecretName]| (names.to_vec(), search(&values, names));
        let searches = names.chunks(VALUES_MAX).map(search).collect();
        Self { values, searches }
    }

    /// The secrets whose value is in these bytes, in any spelling that the host searches answers for.
    pub(super) fn found_in(&self, bytes: &[u8]) -> BTreeSet<&SecretName> {
        let mut found = BTreeSet::new();
        for (names, set) in &self.searches {
            let bits = set.scrub(bytes).map_or(0, |(_, bits)| bits);
            found.extend(
                names.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, name)| name),
            );
        }
        found
    }

    /// A search for the values of these secrets, as the host searches an answer to a request that
    /// carried them.
    pub(super) fn search(&self, names: &[SecretName]) -> ScrubSet {
        search(&self.values, names)
    }

    /// The text of an answer with values in the places of `{{secret:NAME}}`.
    ///
    /// # Errors
    ///
    /// The name of a secret that the request did not carry.
    pub(super) fn fill(&self, text: &[u8], carried: &[SecretName]) -> Result<Vec<u8>, String> {
        let mut filled = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = memmem::find(rest, OPENING.as_bytes()) {
            let (before, placeholder) = rest.split_at(start);
            let Some(end) = memmem::find(placeholder, CLOSING.as_bytes()) else { break };
            let name = placeholder.get(OPENING.len()..end).unwrap_or_default();
            let value = carried.iter().find(|known| known.as_str().as_bytes() == name);
            let Some(value) = value.and_then(|known| self.values.get(known)) else {
                return Err(String::from_utf8_lossy(name).into_owned());
            };
            filled.extend_from_slice(before);
            filled.extend_from_slice(value.as_bytes());
            rest = placeholder.get(end + CLOSING.len()..).unwrap_or_default();
        }
        filled.extend_from_slice(rest);
        Ok(filled)
    }
}

fn search(values: &BTreeMap<SecretName, String>, names: &[SecretName]) -> ScrubSet {
    let value = |name: &SecretName| Bytes::from(values.get(name).cloned().unwrap_or_default());
    ScrubSet::new(names.iter().map(|name| (name.as_str(), value(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_values_that_are_found_again() {
        let name: SecretName = "key".parse().unwrap();
        let canaries = Canaries::new([name.clone()]);
        let carried = [name.clone()];
        let filled = canaries.fill(b"a {{secret:key}} {{ b {{secret:key", &carried).unwrap();
        assert_eq!(canaries.found_in(&filled), BTreeSet::from([&name]));
        let clean = canaries.search(&carried).scrub(&filled).unwrap().0;
        assert_eq!(clean, b"a [secret:key] {{ b {{secret:key");
        assert!(canaries.found_in(&clean).is_empty());
        assert_eq!(canaries.fill(b"{{secret:other}}", &carried), Err("other".to_owned()));
    }
}
