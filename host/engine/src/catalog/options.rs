//! Filters `provider.options`: a provider's guest gets only the fields that the adapter's manifest
//! or the operator lists, in the spelling of the list. A list of forbidden names would not be
//! enough: providers accept names in more than one spelling, and keep adding fields that cost
//! money.

use crate::refusal::printable;
use crate::request::GivenOptions;
use cofferdam_runtime::manifest::ProviderTable;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The field whose values are names with a list of their own.
const BETAS: &str = "betas";

/// The option names that are allowed for one provider.
#[derive(Debug, Default)]
pub struct AllowedOptions {
    fields: OptionNames,
    betas: OptionNames,
}

/// Names by their lower case, each with its listed spelling.
#[derive(Debug, Default)]
struct OptionNames(BTreeMap<String, String>);

/// The options for one provider, split into what its guest gets and what it does not.
pub(crate) struct Sifted {
    /// A JSON object.
    pub(crate) json: Vec<u8>,
    /// Names as the client wrote them. A beta has the form `betas: NAME`.
    pub(crate) dropped: Vec<String>,
}

impl OptionNames {
    fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        Self(names.into_iter().map(|name| (name.to_lowercase(), name.clone())).collect())
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.0.get(&name.to_lowercase()).map(String::as_str)
    }
}

impl AllowedOptions {
    /// The lists of an adapter's manifest joined with the operator's, whose spelling takes
    /// precedence.
    #[must_use]
    pub fn new(table: Option<&ProviderTable>, options: &[String], betas: &[String]) -> Self {
        let [own_options, own_betas] = table.map_or([&[][..]; 2], |table| [&table.options, &table.betas]);
        Self {
            fields: OptionNames::listed(own_options.iter().chain(options)),
            betas: OptionNames::listed(own_betas.iter().chain(betas)),
        }
    }

    /// Keeps the listed options.
    pub(crate) fn sift(&self, given: &GivenOptions) -> Sifted {
        let mut kept = Map::new();
        let mut dropped = Vec::new();
        for (name, value) in given {
            // The value is part of a document that was parsed before, so it is valid.
            let value = || serde_json::from_slice::<Value>(value).unwrap_or_default();
            if let Some(listed) = self.fields.find(name) {
                kept.insert(listed.to_owned(), value());
            } else if name.to_lowercase() == BETAS && !self.betas.0.is_empty() {
                let betas = self.sift_betas(&value(), &mut dropped);
                kept.extend(betas.map(|betas| (BETAS.to_owned(), betas)));
            } else {
                dropped.push(printable(name));
            }
        }
        Sifted { json: Value::Object(kept).to_string().into_bytes(), dropped }
    }

    /// Keeps the listed betas. The value is a list of names, or one text with commas between them.
    /// `None` where no name is left.
    fn sift_betas(&self, written: &Value, dropped: &mut Vec<String>) -> Option<Value> {
        let names: Vec<&str> = match written {
            Value::String(names) => names.split(',').collect(),
            Value::Array(names) => names.iter().map(|name| name.as_str().unwrap_or_default()).collect(),
            _ => vec![""],
        };
        let mut kept = BTreeSet::new();
        for name in names.into_iter().map(str::trim) {
            match self.betas.find(name) {
                Some(listed) => _ = kept.insert(listed.to_owned()),
                None => dropped.push(format!("{BETAS}: {}", printable(name))),
            }
        }
        (!kept.is_empty()).then(|| kept.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn allowed(options: &[&str], betas: &[&str]) -> AllowedOptions {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let table = ProviderTable {
            options: owned(&["top_k", "stop"]),
            betas: owned(&["b-1"]),
            ..ProviderTable::default()
        };
        AllowedOptions::new(Some(&table), &owned(options), &owned(betas))
    }

    fn sifted(allowed: &AllowedOptions, given: &[(&str, &'static str)]) -> (String, Vec<String>) {
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::from_static(value.as_bytes())))
            .collect();
        let Sifted { json, dropped } = allowed.sift(&given);
        (String::from_utf8(json).unwrap(), dropped)
    }

    #[test]
    fn listed_names_pass_in_any_case_under_the_spelling_of_the_list() {
        let allowed = allowed(&["searchDomain", "STOP"], &[]);
        let given = [("Top_K", "1"), ("SEARCHDOMAIN", "[2]"), ("stop", "\"x\""), ("n", "3"), ("topk", "4")];
        let (json, dropped) = sifted(&allowed, &given);
        assert_eq!(json, r#"{"top_k":1,"searchDomain":[2],"STOP":"x"}"#);
        assert_eq!(dropped, ["n", "topk"]);
        assert_eq!(sifted(&allowed, &[]), ("{}".to_owned(), Vec::new()));
    }

    #[test]
    fn betas_are_filtered_one_by_one() {
        let allowed = allowed(&[], &["b-2"]);
        let (json, dropped) = sifted(&allowed, &[("betas", r#"["B-1","b-2","b-3",4,"b-1"]"#)]);
        assert_eq!(json, r#"{"betas":["b-1","b-2"]}"#);
        assert_eq!(dropped, ["betas: b-3", "betas: "]);
        assert_eq!(sifted(&allowed, &[("Betas", "\"b-1, x\"")]).0, r#"{"betas":["b-1"]}"#);
        assert_eq!(sifted(&allowed, &[("betas", "{}")]), ("{}".to_owned(), vec!["betas: ".to_owned()]));
        let none = AllowedOptions::new(None, &[], &[]);
        assert_eq!(sifted(&none, &[("betas", "[]")]), ("{}".to_owned(), vec!["betas".to_owned()]));
    }

    proptest! {
        #[test]
        fn only_listed_options_pass(name in "\\PC{0,12}", value in "[0-9]{1,3}") {
            let given = vec![(name, Bytes::from(value))];
            let Sifted { json, dropped } = allowed(&[], &[]).sift(&given);
            let kept: Map<String, Value> = serde_json::from_slice(&json).unwrap();
            prop_assert!(kept.keys().all(|name| ["top_k", "stop"].contains(&name.as_str())));
            prop_assert_eq!(kept.len() + dropped.len(), 1);
        }
    }
}
