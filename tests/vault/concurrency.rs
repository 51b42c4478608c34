//! Many clients at once: their answers are linearizable.

use super::{Vault, text, with_intern};
use crate::kit::client::Answer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[tokio::test]
async fn a_copy_shows_one_moment_of_all_its_secrets() {
    let (host, intern) = with_intern();
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    vault.stored("a", &["v0.example"], "0").await;
    vault.stored("b", &["v0.example"], "0").await;
    let done = AtomicBool::new(false);
    let writer = async {
        let mut version = 0;
        while !done.load(Ordering::Relaxed) {
            version += 1;
            let (host, value) = (format!("v{version}.example"), version.to_string());
            vault.stored("a", &[&host], &value).await;
            vault.stored("b", &[&host], &value).await;
        }
    };
    let copier = async {
        for _ in 0..60 {
            let answer = own.copy(&["b", "a"]).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let (b, a) = (&answer.body["data"][0], &answer.body["data"][1]);
            let (of_a, of_b) = (version(a), version(b));
            assert!(of_a == of_b || of_a == of_b + 1, "{}", answer.text);
            // Equal values have equal fingerprints, so the values are of the same moment, too.
            assert_eq!(a["fingerprint"] == b["fingerprint"], of_a == of_b, "{}", answer.text);
            assert_eq!(own.list().await, [a.clone(), b.clone()]);
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(writer, copier);
}

/// The version of a secret, encoded in its host name.
fn version(secret: &Value) -> u64 {
    let host = secret["hosts"][0].as_str().unwrap();
    host.strip_prefix('v').and_then(|host| host.strip_suffix(".example")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_copy_of_what_goes_away_is_whole_or_nothing() {
    let (host, intern) = with_intern();
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    vault.stored("a", &["a.example"], "a").await;
    let done = AtomicBool::new(false);
    let writer = async {
        while !done.load(Ordering::Relaxed) {
            vault.stored("b", &["b.example"], "b").await;
            assert_eq!(vault.delete("b").await.status, 204);
        }
    };
    let copier = async {
        let mut statuses = [0, 0];
        while statuses.contains(&0) || statuses[0] + statuses[1] < 60 {
            own.clear().await;
            let answer = own.copy(&["a", "b"]).await;
            let copied = 2 * usize::from(answer.status == 200);
            assert_eq!(own.names().await, ["a", "b"][..copied], "{}", answer.text);
            statuses[usize::from(answer.status == 404)] += 1;
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(writer, copier);
}

#[tokio::test]
async fn of_64_writers_of_one_name_one_remains_whole() {
    let (host, _) = with_intern();
    let vault = Arc::new(Vault::of(&host));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..64 {
        let vault = Arc::clone(&vault);
        writers.spawn(async move {
            vault.stored("a", &[&format!("w{number}.example")], &format!("value {number}")).await
        });
    }
    let answers = writers.join_all().await;
    assert_eq!(answers.len(), 64);
    let fingerprints: HashSet<String> = answers.iter().map(|answer| text(answer, "fingerprint")).collect();
    assert_eq!(fingerprints.len(), 64);
    let dates: HashSet<String> = answers.iter().map(|answer| text(answer, "created_at")).collect();
    assert_eq!(dates.len(), 1, "{dates:?}");
    let [last] = &vault.list().await[..] else { panic!("one name, one secret") };
    assert!(answers.contains(last), "{last}");
}

/// The host of each secret by name. A host name identifies the write that set it.
type Secrets = BTreeMap<String, String>;

/// The workspace's secrets and the intern's.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
struct State {
    workspace: Secrets,
    intern: Secrets,
}

/// An operation of a client and its answer.
#[derive(Clone, Debug)]
enum Deed {
    Put { name: String, host: String },
    Delete { name: String, found: bool },
    Copy { names: Vec<String>, copied: Option<Vec<String>> },
    ListWorkspace(Secrets),
    ListIntern(Secrets),
}

#[derive(Clone, Debug)]
struct Event {
    begun: u64,
    ended: u64,
    deed: Deed,
}

impl State {
    /// The state after an operation, or `None` when its answer does not fit this state.
    fn after(&self, deed: &Deed) -> Option<Self> {
        let mut next = self.clone();
        let fits = match deed {
            Deed::Put { name, host } => {
                next.workspace.insert(name.clone(), host.clone());
                true
            }
            Deed::Delete { name, found } => next.workspace.remove(name).is_some() == *found,
            Deed::Copy { names, copied } => {
                let sources: Option<Vec<String>> =
                    names.iter().map(|name| self.workspace.get(name).cloned()).collect();
                for (name, host) in names.iter().zip(sources.iter().flatten()) {
                    next.intern.insert(name.clone(), host.clone());
                }
                sources == *copied
            }
            Deed::ListWorkspace(seen) => self.workspace == *seen,
            Deed::ListIntern(seen) => self.intern == *seen,
        };
        fits.then_some(next)
    }
}

/// Whether some order of all operations explains all answers. An operation that ended before
/// another began must come first. There is one history per client.
fn is_linearizable(histories: &[Vec<Event>]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; histories.len()], State::default())];
    while let Some((done, state)) = open.pop() {
        let next: Vec<&Event> =
            histories.iter().zip(&done).filter_map(|(history, done)| history.get(*done)).collect();
        let Some(first_end) = next.iter().map(|event| event.ended).min() else { return true };
        for (client, history) in histories.iter().enumerate() {
            let Some(event) = history.get(done[client]).filter(|event| event.begun <= first_end) else {
                continue;
            };
            let Some(state) = state.after(&event.deed) else { continue };
            let mut done = done.clone();
            done[client] += 1;
            if seen.insert((done.clone(), state.clone())) {
                open.push((done, state));
            }
        }
    }
    false
}

fn hosts(answer: &Answer) -> Secrets {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let entries = answer.body["data"].as_array().unwrap().iter();
    entries.map(|entry| (text(entry, "name"), entry["hosts"][0].as_str().unwrap().to_owned())).collect()
}

async fn act(vault: &Vault, own: &Vault, client: u64, round: u64) -> Deed {
    let name = |number: u64| ["a", "b", "c"][usize::try_from(number % 3).unwrap()].to_owned();
    // A fixed, uneven sequence of operations for each client.
    match (client * 5 + round * 7 + client * round) % 8 {
        0..3 => {
            let (name, host) = (name(client + round), format!("c{client}r{round}.example"));
            vault.stored(&name, &[&host], &host).await;
            Deed::Put { name, host }
        }
        3 | 4 => {
            let name = name(client + round);
            let answer = vault.delete(&name).await;
            assert!(matches!(answer.status, 204 | 404), "{}", answer.text);
            Deed::Delete { name, found: answer.status == 204 }
        }
        5 => {
            let names = vec![name(round), name(round + 1)];
            let answer = own.copy(&[&names[0], &names[1]]).await;
            assert!(matches!(answer.status, 200 | 404), "{}", answer.text);
            let copied = (answer.status == 200).then(|| hosts(&answer));
            let copied = copied.map(|copied| names.iter().map(|name| copied[name].clone()).collect());
            Deed::Copy { names, copied }
        }
        6 => Deed::ListIntern(hosts(&own.page("").await)),
        _ => Deed::ListWorkspace(hosts(&vault.page("").await)),
    }
}

/// The operations of one client with their times.
async fn live(vault: &Vault, own: &Vault, client: u64, time: &AtomicU64) -> Vec<Event> {
    let mut history = Vec::new();
    for round in 0..40 {
        let begun = time.fetch_add(1, Ordering::SeqCst);
        let deed = act(vault, own, client, round).await;
        history.push(Event { begun, ended: time.fetch_add(1, Ordering::SeqCst), deed });
    }
    history
}

#[tokio::test]
async fn answers_to_8_concurrent_clients_are_linearizable() {
    let (host, intern) = with_intern();
    let time = Arc::new(AtomicU64::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
        let time = Arc::clone(&time);
        clients.spawn(async move { live(&vault, &own, client, &time).await });
    }
    let histories = clients.join_all().await;
    assert!(is_linearizable(&histories), "{histories:#?}");
}

#[test]
fn the_checker_accepts_linearizable_histories_only() {
    let event = |begun, ended, deed| Event { begun, ended, deed };
    let put = |host: &str| Deed::Put { name: "a".to_owned(), host: host.to_owned() };
    let list = |hosts: Value| Deed::ListWorkspace(serde_json::from_value(hosts).unwrap());
    let delete = |found| Deed::Delete { name: "a".to_owned(), found };
    // Of two concurrent writes either may be last.
    for last in ["x", "y"] {
        let writers =
            [vec![event(0, 3, put("x"))], vec![event(1, 2, put("y")), event(4, 5, list(json!({"a": last})))]];
        assert!(is_linearizable(&writers));
    }
    // Of two sequential writes only the second may be last.
    let reader = |seen| {
        [vec![event(0, 1, put("x"))], vec![event(2, 3, put("y")), event(4, 5, list(json!({"a": seen})))]]
    };
    assert!(is_linearizable(&reader("y")) && !is_linearizable(&reader("x")));
    // A secret cannot be deleted twice, nor before it was stored.
    let both = [vec![event(0, 1, put("x")), event(2, 5, delete(true))], vec![event(3, 4, delete(true))]];
    assert!(!is_linearizable(&both));
    assert!(!is_linearizable(&[vec![event(0, 1, delete(true)), event(2, 3, put("x"))]]));
    assert!(is_linearizable(&[vec![event(0, 3, delete(true))], vec![event(1, 2, put("x"))]]));
}
