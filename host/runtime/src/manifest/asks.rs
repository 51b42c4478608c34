//! The network requests of a manifest: hosts, secrets, and headers with placeholders. Names are
//! parsed here once, into types whose values are always valid.

use std::collections::BTreeSet;
use std::str::FromStr;

use cofferdam_store::{HostName, SecretName};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::injection::is_injectable_header;

/// Stands for every name.
const ANY: &str = "*";
/// Number of names in one list.
const NAMES_MAX: usize = 100;

/// Names that a plugin requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<T> {
    /// Every name that the operator grants: `["*"]`.
    Any,
    /// The given names only.
    Named(BTreeSet<T>),
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl<T: Ord> Asked<T> {
    /// Whether this name is requested.
    #[must_use]
    pub fn covers(&self, name: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Whether no name is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }

    /// The names that are requested one by one; none for [`Asked::Any`].
    pub fn named(&self) -> impl Iterator<Item = &T> {
        match self {
            Self::Any => None,
            Self::Named(names) => Some(names),
        }
        .into_iter()
        .flatten()
    }
}

pub(super) fn hosts<'de, D: Deserializer<'de>>(input: D) -> Result<Asked<HostName>, D::Error> {
    asked(input, "`hosts` takes exact host names, or \"*\" alone")
}

pub(super) fn secrets<'de, D: Deserializer<'de>>(input: D) -> Result<Asked<SecretName>, D::Error> {
    asked(input, "`secrets` takes names of secrets, or \"*\" alone")
}

pub(super) fn headers<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeSet<String>, D::Error> {
    let names = BTreeSet::<String>::deserialize(input)?;
    if names.len() > NAMES_MAX || !names.iter().all(|name| is_injectable_header(name)) {
        return Err(D::Error::custom(
            "`placeholder_headers` takes lower-case names of headers that may carry a secret",
        ));
    }
    Ok(names)
}

fn asked<'de, D: Deserializer<'de>, T: FromStr + Ord>(
    input: D,
    takes: &'static str,
) -> Result<Asked<T>, D::Error> {
    let names = Vec::<String>::deserialize(input)?;
    if names == [ANY] {
        return Ok(Asked::Any);
    }
    if names.len() > NAMES_MAX {
        return Err(D::Error::custom(takes));
    }
    let parsed: Result<_, _> = names.iter().map(|name| name.parse()).collect();
    parsed.map(Asked::Named).map_err(|_| D::Error::custom(takes))
}
