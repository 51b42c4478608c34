//! A digest of those parts of a configuration that must be equal on all hosts that share a store.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use toml::Value;

use super::keys;

/// What belongs to one machine or to its network: a table or a key of a table.
const OF_ONE_HOST: &[&[&str]] = &[
    &["server"],
    &["vault", "root_key"],
    &["vault", "root_key_previous"],
    &["egress", "nameservers"],
    &["egress", "resolve"],
    &["egress", "roots"],
    &["limits", "connections"],
    &["limits", "connections_per_address"],
    &["limits", "streams"],
];

/// Of the table `store`, which is about one machine too, what must be equal.
const OF_THE_STORE: &str = "ledger";

/// The digest of a configuration's text. The order of keys, comments, layout and defaults that are written
/// out make no difference.
pub(super) fn digest(text: &str) -> [u8; 32] {
    // The reader reports a text that cannot be parsed.
    let mut whole = Value::Table(toml::from_str(text).unwrap_or_default());
    OF_ONE_HOST.iter().for_each(|path| remove(&mut whole, path));
    keep_shared(&mut whole);
    remove_defaults(&mut whole);
    Sha256::digest(written(&whole)).into()
}

/// Removes what a table `store` has for one machine.
fn keep_shared(whole: &mut Value) {
    let Some(store) = whole.get_mut("store").and_then(Value::as_table_mut) else { return };
    store.retain(|key, _| key == OF_THE_STORE);
    if store.is_empty() {
        remove(whole, &["store"]);
    }
}

/// Removes keys that have their default values.
fn remove_defaults(whole: &mut Value) {
    for key in keys::KEYS {
        let keys::Default::Is(default) = key.default else { continue };
        let path: Vec<&str> = key.path.split('.').collect();
        let default = toml::from_str(&format!("it = {default}")).ok();
        let default: Option<Value> = default.and_then(|mut parsed: toml::Table| parsed.remove("it"));
        let found = path.iter().try_fold(&*whole, |value, name| value.get(*name));
        if found.is_some() && found == default.as_ref() {
            remove(whole, &path);
        }
    }
}

fn remove(from: &mut Value, path: &[&str]) {
    match (from.as_table_mut(), path) {
        (Some(table), [name]) => drop(table.remove(*name)),
        (Some(table), [name, rest @ ..]) => {
            if let Some(inner) = table.get_mut(*name) {
                remove(inner, rest);
                // A table that is empty now says no more than one that is not there.
                if inner.as_table().is_some_and(toml::Table::is_empty) {
                    table.remove(*name);
                }
            }
        }
        _ => {}
    }
}

/// A value with the keys of each table in ascending order.
fn written(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let sorted: BTreeMap<&String, String> =
                table.iter().map(|(name, value)| (name, written(value))).collect();
            let members: Vec<String> =
                sorted.into_iter().map(|(name, value)| format!("{name:?}={value}")).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(",")),
        Value::String(text) => format!("{text:?}"),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::digest;

    const FIRST: &str = "[server]\nlisten = \"a:1\"\n[limits]\nstreams = 5\nrequests_per_minute = 60\n\
                         [vault]\nroot_key = \"file:a\"\n";

    #[test]
    fn what_belongs_to_one_machine_and_the_layout_make_no_difference() {
        let second =
            "# A comment.\n[limits]\nrequests_per_minute = 60\n[store]\nurl = \"postgres://u@b/d\"\n";
        assert_eq!(digest(FIRST), digest(second));
    }

    #[test]
    fn a_default_that_is_written_out_makes_no_difference() {
        assert_eq!(digest("[routing]\neject = true\nretry = true\n"), digest(""));
        assert_ne!(digest("[routing]\neject = false\n"), digest(""));
    }

    #[test]
    fn of_the_store_the_way_of_reserving_makes_a_difference() {
        let exact = "[store]\nurl = \"postgres://u@b/d\"\nledger = \"exact\"\n";
        assert_eq!(digest(exact), digest(""));
        assert_ne!(digest(&exact.replace("exact", "leased")), digest(""));
    }

    #[test]
    fn a_limit_a_provider_and_a_model_make_a_difference() {
        for change in [
            FIRST.replace("requests_per_minute = 60", "requests_per_minute = 61"),
            format!("{FIRST}[[providers]]\nname = \"a\"\n"),
            format!("{FIRST}[[models]]\nid = \"a\"\n[[models]]\nid = \"b\"\n"),
        ] {
            assert_ne!(digest(FIRST), digest(&change), "{change}");
        }
        let swapped = |first: &str, second: &str| {
            digest(&format!("[[models]]\nid = \"{first}\"\n[[models]]\nid = \"{second}\"\n"))
        };
        assert_ne!(swapped("a", "b"), swapped("b", "a"), "the order of models is that of the catalog");
    }
}
