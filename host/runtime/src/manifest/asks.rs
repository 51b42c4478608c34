//! What a manifest asks of the network: hosts, secrets, and headers with
//! placeholders. Names are parsed here once, into types that cannot be wrong.

use std::collections::BTreeSet;
use std::str::FromStr;

use cofferdam_store::{HostName, SecretName};
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::injection::is_injectable_header;

/// What stands for every name.
const ANY: &str = "*";
/// Names in one list.
const NAMES_MAX: usize = 100;

/// Names a plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<T> {
    /// Whatever the operator names: `["*"]`.
    Any,
    /// These.
    Named(BTreeSet<T>),
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl<T: Ord> Asked<T> {
    /// Whether this one is asked for.
    #[must_use]
    pub fn covers(&self, name: &T) -> bool {
        match self {
            Self::Any => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }

    /// The names that are asked for one by one.
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
