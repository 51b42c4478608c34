//! Random requests, compared with a model of the vault: two maps.

use super::{Vault, command, text, with_intern};
use crate::kit::client::Answer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use std::collections::BTreeMap;

const NAMES: [&str; 6] = ["a", "a1", "a_b", "ab", "b", "copy"];

#[derive(Clone, Debug)]
enum Step {
    Put { of_intern: bool, name: usize, host: u8, value: u8 },
    Delete { of_intern: bool, name: usize },
    Copy { names: Vec<usize> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let names = proptest::sample::subsequence((0..NAMES.len()).collect::<Vec<_>>(), 1..=3).prop_shuffle();
    let step = prop_oneof![
        4 => (any::<bool>(), name.clone(), 0..4_u8, 0..3_u8)
            .prop_map(|(of_intern, name, host, value)| Step::Put { of_intern, name, host, value }),
        2 => (any::<bool>(), name).prop_map(|(of_intern, name)| Step::Delete { of_intern, name }),
        2 => names.prop_map(|names| Step::Copy { names }),
    ];
    proptest::collection::vec(step, 1..24)
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    host: u8,
    value: u8,
    /// As first returned; storing again keeps it.
    created_at: Option<String>,
}

/// The model: what is in the workspace's vault and in the intern's.
#[derive(Default)]
struct Model {
    vaults: [BTreeMap<&'static str, Entry>; 2],
}

impl Model {
    /// Applies a step to the model; returns the expected status.
    fn apply(&mut self, step: &Step) -> u16 {
        let store = |vault: &mut BTreeMap<&'static str, Entry>, name, host, value| {
            let created_at = vault.get(name).and_then(|entry| entry.created_at.clone());
            vault.insert(name, Entry { host, value, created_at });
        };
        match step {
            Step::Put { of_intern, name, host, value } => {
                store(&mut self.vaults[usize::from(*of_intern)], NAMES[*name], *host, *value);
                200
            }
            Step::Delete { of_intern, name } => {
                let gone = self.vaults[usize::from(*of_intern)].remove(NAMES[*name]);
                if gone.is_some() { 204 } else { 404 }
            }
            Step::Copy { names } => {
                let sources: Option<Vec<Entry>> =
                    names.iter().map(|name| self.vaults[0].get(NAMES[*name]).cloned()).collect();
                let Some(sources) = sources else { return 404 };
                for (name, source) in names.iter().zip(sources) {
                    store(&mut self.vaults[1], NAMES[*name], source.host, source.value);
                }
                200
            }
        }
    }

    /// The secrets an intern can use, and the vault each is from.
    fn effective(&self) -> BTreeMap<&'static str, (usize, &Entry)> {
        let of = |vault: usize| self.vaults[vault].iter().map(move |(name, entry)| (*name, (vault, entry)));
        of(0).chain(of(1)).collect()
    }
}

struct Real {
    vaults: [Vault; 2],
    /// The fingerprint of each value, per vault.
    fingerprints: [BTreeMap<u8, String>; 2],
}

impl Real {
    async fn apply(&self, step: &Step) -> Answer {
        match step {
            Step::Put { of_intern, name, host, value } => {
                let vault = &self.vaults[usize::from(*of_intern)];
                vault.put(NAMES[*name], &[&format!("h{host}.example")], &format!("value {value}")).await
            }
            Step::Delete { of_intern, name } => {
                self.vaults[usize::from(*of_intern)].delete(NAMES[*name]).await
            }
            Step::Copy { names } => {
                let names: Vec<&str> = names.iter().map(|name| NAMES[*name]).collect();
                self.vaults[1].copy(&names).await
            }
        }
    }

    /// All pages of a listing.
    async fn walk(&self, effective: bool, of_intern: bool, limit: usize) -> Vec<Value> {
        let vault = &self.vaults[usize::from(of_intern)];
        let mut entries = Vec::new();
        loop {
            let query = format!("?limit={limit}&offset={}", entries.len());
            let page = if effective { vault.effective(&query).await } else { vault.page(&query).await };
            let data = page.body["data"].as_array().unwrap_or_else(|| panic!("{}", page.text));
            let has_more = page.body["has_more"].as_bool().unwrap();
            assert!(data.len() <= limit && (!has_more || data.len() == limit), "{}", page.text);
            entries.extend(data.iter().cloned());
            if !has_more {
                return entries;
            }
        }
    }

    /// Compares a returned secret with the model; records fingerprint and date at first sight.
    fn compare(&mut self, vault: usize, shown: &Value, name: &str, entry: &Entry) -> String {
        assert_eq!(shown["name"], name);
        assert_eq!(shown["hosts"], serde_json::json!([format!("h{}.example", entry.host)]));
        let (fingerprint, created_at) = (text(shown, "fingerprint"), text(shown, "created_at"));
        let fingerprints = &mut self.fingerprints[vault];
        assert_eq!(*fingerprints.entry(entry.value).or_insert_with(|| fingerprint.clone()), fingerprint);
        assert_eq!(fingerprints.values().filter(|known| **known == fingerprint).count(), 1);
        assert!(entry.created_at.as_ref().is_none_or(|known| *known == created_at), "{shown}");
        created_at
    }
}

async fn compare(model: &mut Model, real: &mut Real, limit: usize) {
    for vault in 0..2 {
        let shown = real.walk(false, vault == 1, limit).await;
        assert_eq!(shown.len(), model.vaults[vault].len(), "{shown:?} {:?}", model.vaults[vault]);
        for (shown, (name, entry)) in shown.iter().zip(&mut model.vaults[vault]) {
            entry.created_at = Some(real.compare(vault, shown, name, entry));
        }
    }
    let shown = real.walk(true, true, limit).await;
    let expected = model.effective();
    assert_eq!(shown.len(), expected.len(), "{shown:?} {expected:?}");
    for (shown, (name, (vault, entry))) in shown.iter().zip(expected) {
        assert_eq!(shown["scope"], ["workspace", "intern"][vault]);
        real.compare(vault, shown, name, entry);
    }
    // Fingerprints of two vaults do not reveal that their values are equal.
    let [workspace, intern] = &real.fingerprints;
    assert!(workspace.values().all(|fingerprint| intern.values().all(|other| other != fingerprint)));
}

/// After each request all three listings agree with the model, page by page.
#[test]
fn the_vault_behaves_like_two_maps() {
    let workers = tokio::runtime::Runtime::new().unwrap();
    let (host, intern) = with_intern();
    let key = text(&command(&host, "key create --workspace default --intern scout"), "key");
    let vaults = || [Vault::of(&host), Vault::of_intern(&host, &host.key, &intern)];
    let own = Vault::of_intern(&host, &key, &intern);
    let real = std::cell::RefCell::new(Real { vaults: vaults(), fingerprints: Default::default() });
    let mut runner = TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(steps(), 1..4_usize), |(steps, limit)| {
        let real = &mut *real.borrow_mut();
        workers.block_on(async {
            let mut model = Model::default();
            real.vaults[0].clear().await;
            real.vaults[1].clear().await;
            for step in &steps {
                let expected = model.apply(step);
                let answer = real.apply(step).await;
                assert_eq!(answer.status, expected, "{step:?}: {}", answer.text);
                compare(&mut model, real, limit).await;
            }
            // The intern's own key sees the same.
            assert_eq!(own.list().await, real.vaults[1].list().await);
        });
        Ok(())
    });
    outcome.unwrap();
}
