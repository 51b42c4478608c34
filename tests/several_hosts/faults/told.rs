//! What clients were told.

use super::doors::{Sent, Verdict};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// In every value; found in no file and no log.
pub const CANARY: &str = "canary-7d41c60be2";

/// The vaults of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vault {
    Workspace,
    /// Of the intern that secrets are copied to.
    Copies,
    /// Of the intern whose secrets are read back.
    Read,
}

/// What a name has in a vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Has {
    Nothing,
    Version(usize),
}

/// A secret that one client at a time changes.
#[derive(Clone, Debug)]
pub struct Name {
    /// What was acknowledged last, with the fingerprint that the answer had.
    pub known: Has,
    pub fingerprint: Option<String>,
    /// Changes after that whose answers were lost or told that the outcome is not known. The name is not changed any
    /// more: such a change may be made at any time.
    pub doubts: Vec<Has>,
    /// How many versions were sent.
    pub sent: usize,
    /// How many puts were acknowledged, and how many may have been made.
    pub puts: usize,
    pub possible_puts: usize,
}

/// Secrets that were copied together.
#[derive(Clone, Debug)]
pub struct Copied {
    pub names: Vec<String>,
    pub verdict: Verdict,
}

/// A change of a vault that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub host: usize,
    pub at: Instant,
    pub answered: Instant,
}

/// A key that was revoked.
#[derive(Clone, Copy, Debug)]
pub struct Revoked {
    /// From the first request to revoke it to the answer that says that it is.
    pub took: Duration,
    /// From that answer to the last request by another host that was sent with the key and served, in milliseconds; less
    /// than 0 if that was before.
    pub last_success_ms: i64,
}

/// An answer of a model.
#[derive(Clone, Debug)]
pub struct Answered {
    pub id: String,
    pub host: usize,
    pub at: Instant,
}

#[derive(Default)]
pub struct Told {
    pub names: Mutex<BTreeMap<(Vault, String), Name>>,
    pub copies: Mutex<Vec<Copied>>,
    pub writes: Mutex<Vec<Write>>,
    pub paid: Mutex<Vec<Answered>>,
    pub open: Mutex<Vec<Answered>>,
    pub revoked: Mutex<Vec<Revoked>>,
    /// Whose rows of the last moment may be lost: hosts, when they were killed, and when they were started again.
    pub killed: Mutex<Vec<(usize, Instant, Instant)>>,
    /// The longest time after the answer to a put in which a list without it was asked for.
    pub stale: Mutex<Duration>,
    grown: Notify,
}

pub fn value(name: &str, version: usize) -> String {
    format!("{CANARY} {name} {version}")
}

impl Told {
    /// Begins a change of a name. `None`: what it has is in doubt.
    pub fn begin(&self, vault: Vault, name: &str) -> Option<Name> {
        let mut names = self.names.lock().unwrap();
        let fresh = Name {
            known: Has::Nothing,
            fingerprint: None,
            doubts: Vec::new(),
            sent: 0,
            puts: 0,
            possible_puts: 0,
        };
        let entry = names.entry((vault, name.to_owned())).or_insert(fresh);
        if !entry.doubts.is_empty() {
            return None;
        }
        entry.sent += 1;
        Some(entry.clone())
    }

    /// Notes how a change ended that was to give this to the name.
    pub fn end(&self, vault: Vault, name: &str, to: Has, sent: &Sent) -> Verdict {
        let verdict = sent.verdict();
        let mut names = self.names.lock().unwrap();
        let entry = names.get_mut(&(vault, name.to_owned())).unwrap();
        let is_put = usize::from(to != Has::Nothing);
        match verdict {
            Verdict::Done => {
                entry.fingerprint = sent.body["data"]["fingerprint"].as_str().map(str::to_owned);
                entry.known = to;
                entry.puts += is_put;
                entry.possible_puts += is_put;
            }
            Verdict::Refused => {}
            Verdict::Doubt => {
                entry.doubts.push(to);
                entry.possible_puts += is_put;
            }
        }
        drop(names);
        if verdict == Verdict::Done {
            let write = Write { host: sent.host, at: sent.at, answered: sent.answered };
            self.writes.lock().unwrap().push(write);
            self.grown.notify_waiters();
        }
        verdict
    }

    pub fn note_copy(&self, names: Vec<String>, verdict: Verdict) {
        self.copies.lock().unwrap().push(Copied { names, verdict });
    }

    /// Notes an answer of a model.
    pub fn note_answer(&self, is_paid: bool, sent: &Sent) {
        let (Some(200), Some(id)) = (sent.status, &sent.id) else { return };
        let answered = Answered { id: id.clone(), host: sent.host, at: sent.answered };
        let list = if is_paid { &self.paid } else { &self.open };
        list.lock().unwrap().push(answered);
        self.grown.notify_waiters();
    }

    pub fn note_revoked(&self, revoked: Revoked) {
        self.revoked.lock().unwrap().push(revoked);
    }

    pub fn note_stale(&self, stale: Duration) {
        let mut longest = self.stale.lock().unwrap();
        *longest = stale.max(*longest);
    }

    /// How many answers arrived of each kind: changes of vaults, paid and unpaid answers of models.
    pub fn counts(&self) -> [usize; 3] {
        [self.writes.lock().unwrap().len(), self.paid.lock().unwrap().len(), self.open.lock().unwrap().len()]
    }

    /// The first answer of each of these hosts to a change that was sent after this moment; waits for it.
    pub async fn first_after(&self, at: Instant, hosts: &[usize]) -> Vec<Instant> {
        let first = |host: &usize| {
            let writes = self.writes.lock().unwrap();
            let of_host = writes.iter().filter(|write| write.host == *host && write.at > at);
            of_host.map(|write| write.answered).min()
        };
        loop {
            let grown = self.grown.notified();
            if let Some(all) = hosts.iter().map(first).collect() {
                return all;
            }
            grown.await;
        }
    }

    /// Waits until there are more answers of each kind than these.
    pub async fn until_more(&self, than: [usize; 3]) {
        loop {
            let grown = self.grown.notified();
            if self.counts().iter().zip(than).all(|(count, than)| *count > than) {
                return;
            }
            grown.await;
        }
    }
}
