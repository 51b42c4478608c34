//! The hosts that a plugin may reach, and whether a secret may be sent there.

use std::collections::BTreeSet;

use cofferdam_store::HostName;

use crate::manifest::Asked;

/// The hosts of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostGrant {
    /// Requested, and granted by name.
    named: BTreeSet<HostName>,
    /// Requested, and granted by the operator's `"*"` only.
    public: Asked<HostName>,
}

/// How a host was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostAccess {
    /// By its name. Secrets may be sent there.
    Named,
    /// By `"*"`: public addresses only, and never with a secret.
    Public,
}

impl HostGrant {
    /// Combines the manifest's hosts with the operator's. `any` is the operator's `"*"`.
    pub(crate) fn join(asked: &Asked<HostName>, granted: &BTreeSet<HostName>, any: bool) -> Self {
        let named = granted.iter().filter(|host| asked.covers(host)).cloned().collect();
        Self { named, public: if any { asked.clone() } else { Asked::default() } }
    }

    /// How this host may be reached; `None` if it may not.
    pub(crate) fn access(&self, host: &HostName) -> Option<HostAccess> {
        if self.named.contains(host) {
            Some(HostAccess::Named)
        } else if self.public.covers(host) {
            Some(HostAccess::Public)
        } else {
            None
        }
    }

    /// Whether no host can be reached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.public.is_empty()
    }

    /// The hosts as an operator would list them, with `*` for any public one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let named = self.named.iter().chain(self.public.named().filter(|host| !self.named.contains(host)));
        let any = matches!(self.public, Asked::Any).then_some("*");
        any.into_iter().chain(named.map(HostName::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    fn hosts(names: &[&str]) -> BTreeSet<HostName> {
        names.iter().map(|name| host(name)).collect()
    }

    #[test]
    fn a_host_needs_both_sides() {
        let asked = Asked::Named(hosts(&["a.test", "b.test"]));
        let grant = HostGrant::join(&asked, &hosts(&["b.test", "c.test"]), false);
        assert_eq!(grant.access(&host("a.test")), None);
        assert_eq!(grant.access(&host("b.test")), Some(HostAccess::Named));
        assert_eq!(grant.access(&host("c.test")), None);
        assert_eq!(grant.iter().collect::<Vec<_>>(), ["b.test"]);
    }

    #[test]
    fn a_manifest_that_requests_any_host_gets_the_named_ones() {
        let grant = HostGrant::join(&Asked::Any, &hosts(&["b.test"]), false);
        assert_eq!(grant.access(&host("a.test")), None);
        assert_eq!(grant.access(&host("b.test")), Some(HostAccess::Named));
        assert!(HostGrant::join(&Asked::Any, &hosts(&[]), false).is_empty());
    }

    #[test]
    fn a_wildcard_of_the_operator_grants_nothing_by_name() {
        let grant = HostGrant::join(&Asked::Any, &hosts(&["b.test"]), true);
        assert_eq!(grant.access(&host("a.test")), Some(HostAccess::Public));
        assert_eq!(grant.access(&host("b.test")), Some(HostAccess::Named));
        assert_eq!(grant.iter().collect::<Vec<_>>(), ["*", "b.test"]);
        let narrow = HostGrant::join(&Asked::Named(hosts(&["a.test"])), &hosts(&[]), true);
        assert_eq!(narrow.access(&host("a.test")), Some(HostAccess::Public));
        assert_eq!(narrow.access(&host("b.test")), None);
    }
}
