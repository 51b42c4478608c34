//! Clients that change the same few names through all hosts see one order of their changes.

use super::cluster::{Cluster, HOSTS};
use super::doors::{Doors, Sent, Verdict};
use super::history::{Act, NAMES, Request, is_linear};
use super::load::{Keys, put_body};
use super::table;
use crate::kit::random::Random;
use cofferdam_test_postgres::{Fault, Place, Rule};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const CLIENTS: usize = 16;
/// Requests of each client.
const REQUESTS: usize = 10;
/// What happens to one commit of each host meanwhile.
const BREAKS: [Fault; HOSTS] = [Fault::CutBefore, Fault::CutAfter, Fault::SwallowReply];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_same_names_through_all_hosts_have_one_order() {
    let fault = "16 clients on 4 names, put, copy, delete, a commit of each host broken";
    table(fault, 20, async |cluster, random, round| compete(cluster, random, round).await).await;
}

/// Lets all clients ask, and looks for an order of what they did.
pub async fn compete(cluster: &mut Cluster, random: &mut Random, round: usize) {
    for (host, fault) in BREAKS.into_iter().enumerate() {
        cluster.ways_of(host)[0].add(Rule::new(Place::Commit, fault));
    }
    let fault = cluster.begin_fault();
    let clients = (0..CLIENTS).map(|number| {
        let client = Client {
            doors: Arc::clone(&cluster.doors),
            keys: Arc::clone(&cluster.keys),
            number,
            round,
            random: Random::new(random.draw()),
        };
        tokio::spawn(client.ask())
    });
    let mut seen: Vec<Seen> = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        seen.extend(client.await.unwrap());
    }
    cluster.until_served(fault).await;
    let numbers = numbers_of(cluster, &seen).await;
    seen.sort_by_key(|seen| seen.sent.at);
    let requests: Vec<Request> = seen.iter().filter_map(|seen| seen.request(&numbers)).collect();
    let doubtful = requests.iter().filter(|request| request.answered.is_none()).count();
    println!("{} requests, {doubtful} without an outcome", requests.len());
    assert!(is_linear(&requests), "there is no order of {requests:#?}");
}

/// A request and its answer, of which lists have fingerprints.
struct Seen {
    round: usize,
    asked: Asked,
    sent: Sent,
}

#[derive(Clone, Debug)]
enum Asked {
    Put { name: usize, number: usize },
    Delete { name: usize },
    Copy { names: Vec<usize> },
    List,
    ListCopied,
}

/// The number of the put whose value has this fingerprint, in the vaults of the workspace and of the intern.
type Numbers = [BTreeMap<String, usize>; 2];

struct Client {
    doors: Arc<Doors>,
    keys: Arc<Keys>,
    number: usize,
    round: usize,
    random: Random,
}

fn name(round: usize, name: usize) -> String {
    format!("linear_{round}_{name}")
}

fn own(keys: &Keys) -> [String; 2] {
    ["/vault/secrets".to_owned(), format!("/vault/interns/{}/secrets", keys.linear)]
}

impl Client {
    async fn ask(mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for turn in 0..REQUESTS {
            let asked = self.draw(turn);
            let host = self.doors.next();
            let sent = self.send(host, &asked).await;
            seen.push(Seen { round: self.round, asked, sent });
        }
        seen
    }

    fn draw(&mut self, turn: usize) -> Asked {
        let some = |random: &mut Random| random.below(NAMES as u64) as usize;
        match self.random.below(10) {
            0..3 => {
                let number = 1 + self.number * REQUESTS + turn;
                Asked::Put { name: some(&mut self.random), number }
            }
            3 => Asked::Delete { name: some(&mut self.random) },
            4 => {
                let first = some(&mut self.random);
                Asked::Copy { names: vec![first, (first + 1) % NAMES] }
            }
            5..8 => Asked::List,
            _ => Asked::ListCopied,
        }
    }

    async fn send(&self, host: usize, asked: &Asked) -> Sent {
        let [own, copied] = own(&self.keys);
        let named = |number: &usize| name(self.round, *number);
        let (method, path, body) = match asked {
            Asked::Put { name, number } => {
                (Method::PUT, format!("{own}/{}", named(name)), put_body("linear", *number))
            }
            Asked::Delete { name } => (Method::DELETE, format!("{own}/{}", named(name)), Value::Null),
            Asked::Copy { names } => {
                let names: Vec<String> = names.iter().map(named).collect();
                (Method::POST, format!("{copied}/copy"), json!({"names": names}))
            }
            Asked::List => (Method::GET, format!("{own}?limit=100"), Value::Null),
            Asked::ListCopied => (Method::GET, format!("{copied}?limit=100"), Value::Null),
        };
        self.doors.send(host, &self.keys.paid, method, &path, &body).await
    }
}

/// Puts all values again, under another name: equal values of one vault have equal fingerprints.
async fn numbers_of(cluster: &Cluster, seen: &[Seen]) -> Numbers {
    let puts = seen.iter().filter_map(|seen| match seen.asked {
        Asked::Put { number, .. } => Some(number),
        _ => None,
    });
    let mut numbers = Numbers::default();
    for number in puts {
        for (numbers, path) in numbers.iter_mut().zip(own(&cluster.keys)) {
            let (path, body) = (format!("{path}/probe"), put_body("linear", number));
            numbers.insert(cluster.fingerprint_of_put(&cluster.keys.paid, &path, &body).await, number);
        }
    }
    numbers
}

impl Seen {
    /// `None`: nothing was done, or nothing was told.
    fn request(&self, numbers: &Numbers) -> Option<Request> {
        let is_absent = self.sent.status == Some(404);
        let verdict = if is_absent { Verdict::Done } else { self.sent.verdict() };
        let is_done = verdict == Verdict::Done;
        if verdict == Verdict::Refused {
            return None;
        }
        let told = is_done.then_some(!is_absent);
        let act = match &self.asked {
            Asked::Put { name, number } => Act::Put { name: *name, number: *number },
            Asked::Delete { name } => Act::Delete { name: *name, was_there: told },
            Asked::Copy { names } => Act::Copy { names: names.clone(), is_done: told },
            Asked::List if is_done => Act::List { found: self.found(&numbers[0]) },
            Asked::ListCopied if is_done => Act::ListCopied { found: self.found(&numbers[1]) },
            Asked::List | Asked::ListCopied => return None,
        };
        Some(Request { act, sent: self.sent.at, answered: is_done.then_some(self.sent.answered) })
    }

    /// What a list has of the names of this round.
    fn found(&self, numbers: &BTreeMap<String, usize>) -> [usize; NAMES] {
        let listed = self.sent.body["data"].as_array().unwrap();
        std::array::from_fn(|at| {
            let is_it =
                |secret: &&Value| secret["name"].as_str().is_some_and(|found| self.is_name(found, at));
            let fingerprint = listed.iter().find(is_it).map(|secret| secret["fingerprint"].as_str().unwrap());
            fingerprint.map_or(0, |fingerprint| numbers[fingerprint])
        })
    }

    fn is_name(&self, found: &str, at: usize) -> bool {
        found == name(self.round, at)
    }
}
