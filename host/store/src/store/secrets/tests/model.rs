//! Random sequences of operations against a model of two maps, compared after each step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What callers see of a secret: value, first host, date.
type Shown = (String, String, u64);

#[derive(Default)]
struct Model {
    workspace: BTreeMap<String, Shown>,
    intern: BTreeMap<String, Shown>,
}

impl Model {
    fn vault(&mut self, of_intern: bool) -> &mut BTreeMap<String, Shown> {
        if of_intern { &mut self.intern } else { &mut self.workspace }
    }

    fn put(&mut self, of_intern: bool, name: &str, value: &str, host: &str, now_ms: u64) {
        let vault = self.vault(of_intern);
        let date = vault.get(name).map_or(now_ms, |(_, _, date)| *date);
        vault.insert(name.to_owned(), (value.to_owned(), host.to_owned(), date));
    }

    fn copy(&mut self, names: &[String], now_ms: u64) -> bool {
        let sources: Option<Vec<_>> = names.iter().map(|name| self.workspace.get(name).cloned()).collect();
        let Some(sources) = sources else { return false };
        for (name, (value, host, _)) in names.iter().zip(sources) {
            self.put(true, name, &value, &host, now_ms);
        }
        true
    }

    fn effective(&self) -> BTreeMap<String, Shown> {
        let mut all = self.workspace.clone();
        all.extend(self.intern.clone());
        all
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { of_intern: bool, name: String, value: String, host: String },
    Delete { of_intern: bool, name: String },
    Copy { names: Vec<String> },
    Reopen,
}

fn names_of_few() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "a1", "a_b", "ab", "b", "z9"]).prop_map(str::to_owned)
}

fn step() -> impl Strategy<Value = Step> {
    let host = prop::sample::select(vec!["a.example", "b.example"]).prop_map(str::to_owned);
    prop_oneof![
        8 => (any::<bool>(), names_of_few(), "[xyz]{1,2}", host)
            .prop_map(|(of_intern, name, value, host)| Step::Put { of_intern, name, value, host }),
        4 => (any::<bool>(), names_of_few()).prop_map(|(of_intern, name)| Step::Delete { of_intern, name }),
        3 => prop::collection::btree_set(names_of_few(), 1..4)
            .prop_map(|names| Step::Copy { names: names.into_iter().collect() }),
        1 => Just(Step::Reopen),
    ]
}

struct World {
    scratch: ScratchDirectory,
    store: Store,
    workspace: WorkspaceId,
    intern: InternId,
    model: Model,
}

impl World {
    fn new() -> World {
        let scratch = ScratchDirectory::new();
        let store = scratch.open();
        let workspace = default_workspace(&store);
        let intern = create_intern(&store, workspace, "i");
        World { scratch, store, workspace, intern, model: Model::default() }
    }

    fn vault(&self, of_intern: bool) -> VaultId {
        if of_intern { VaultId::Intern(self.intern) } else { VaultId::Workspace(self.workspace) }
    }

    fn take(&mut self, step: Step) {
        self.scratch.clock.advance(Duration::from_millis(1));
        let now_ms = self.scratch.clock.now_ms();
        match step {
            Step::Put { of_intern, name, value, host } => {
                let hosts = Hosts::parse(&[&host]).unwrap();
                let secret = NewSecret { hosts, ..new(self.vault(of_intern), &name, &value) };
                let permit = permit(&self.store);
                self.store.put_secret(permit, OPERATOR, secret).wait(PATIENCE).unwrap();
                self.model.put(of_intern, &name, &value, &host, now_ms);
            }
            Step::Delete { of_intern, name } => {
                let deleted = delete(&self.store, self.vault(of_intern), &name);
                assert_eq!(deleted.is_ok(), self.model.vault(of_intern).remove(&name).is_some());
            }
            Step::Copy { names } => {
                let asked: Vec<&str> = names.iter().map(String::as_str).collect();
                let copied = copy(&self.store, self.workspace, self.intern, &asked);
                assert_eq!(copied.is_ok(), self.model.copy(&names, now_ms));
            }
            Step::Reopen => {
                self.store.close();
                self.store = self.scratch.open();
            }
        }
    }

    fn compare_pages(&self, vault: VaultId, expected: &BTreeMap<String, Shown>) {
        let expected: Vec<_> = expected.iter().collect();
        for offset in 0..=expected.len() {
            let page = self.store.list_secrets(vault, offset, 2).now().unwrap();
            let rest = &expected[offset..];
            assert_eq!((page.entries.len(), page.has_more), (rest.len().min(2), rest.len() > 2));
            page.entries.iter().zip(rest).for_each(|(entry, (name, shown))| check(entry, name, shown));
        }
    }

    fn compare(&self) {
        self.compare_pages(self.vault(false), &self.model.workspace);
        self.compare_pages(self.vault(true), &self.model.intern);
        let effective = self.store.effective_secrets(self.intern, 0, 100).now().unwrap();
        let expected = self.model.effective();
        assert_eq!(effective.entries.len(), expected.len());
        for (entry, (name, shown)) in effective.entries.iter().zip(&expected) {
            check(&entry.metadata, name, shown);
            assert_eq!(entry.scope == EffectiveScope::Intern, self.model.intern.contains_key(name));
            let request = request(ReleaseScope::Intern(self.intern), name, &shown.1);
            let release = self.store.release(request).now().ok().unwrap();
            assert_eq!(release.expose(), shown.0.as_bytes());
        }
    }
}

fn check(entry: &SecretMetadata, name: &str, (_, host, date): &Shown) {
    assert_eq!((entry.name.as_str(), entry.created_at_ms), (name, *date));
    assert_eq!(entry.hosts.as_ref().unwrap().as_slice(), [host.parse().unwrap()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_sequence_of_operations_agrees_with_the_model(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.compare();
        }
        assert!(verify_vaults(&world.store).findings.is_empty());
        assert_eq!(broken_audit(&world.store), None);
    }
}
