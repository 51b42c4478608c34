//! Rows that a test writes, who was told that they are stored, and whether they are.

use crate::kit::host::{Host, program};
use crate::kit::operator::send;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// The socket takes this many commands at once.
const WRITERS: usize = 8;

#[derive(Default)]
pub struct Rows {
    begun: AtomicUsize,
    known: Mutex<Known>,
    grown: Condvar,
}

#[derive(Default)]
struct Known {
    acknowledged: BTreeSet<String>,
    attempted: BTreeSet<String>,
}

impl Rows {
    /// Writes rows until `until` says so or the host does not acknowledge one.
    pub fn write(&self, host: &Host, until: impl Fn(usize) -> bool + Sync) {
        let data = host.data();
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| while !until(self.acknowledged()) && self.write_one(&data) {});
            }
        });
    }

    /// Writes this many rows, all of which must be acknowledged.
    pub fn write_exactly(&self, host: &Host, count: usize) {
        let end = self.begun.load(Ordering::Relaxed) + count;
        let data = host.data();
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    loop {
                        let taken = self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |begun| {
                            (begun < end).then_some(begun + 1)
                        });
                        let Ok(number) = taken else { return };
                        assert!(self.write_row(&data, number));
                    }
                });
            }
        });
    }

    fn write_one(&self, data: &Path) -> bool {
        self.write_row(data, self.begun.fetch_add(1, Ordering::Relaxed))
    }

    fn write_row(&self, data: &Path, number: usize) -> bool {
        let name = format!("w{number}");
        self.known.lock().unwrap().attempted.insert(name.clone());
        let command = json!({"workspace": {"create": {
            "name": name, "no_programme": false, "no_vault_writes": false}}});
        let stored = send(data, &command).is_some();
        if stored {
            self.known.lock().unwrap().acknowledged.insert(name);
            self.grown.notify_all();
        }
        stored
    }

    pub fn acknowledged(&self) -> usize {
        self.known.lock().unwrap().acknowledged.len()
    }

    /// Waits until so many rows are acknowledged.
    pub fn until(&self, count: usize) {
        let known = self.known.lock().unwrap();
        let waited = self.grown.wait_timeout_while(known, PATIENCE, |known| known.acknowledged.len() < count);
        assert!(!waited.unwrap().1.timed_out(), "fewer than {count} rows are acknowledged");
    }

    /// Opens the data directory with the program, which nobody else has open, and looks for every row.
    pub fn check(&self, data: &Path) -> Result<(), Failed> {
        let known = self.known.lock().unwrap();
        check(data, &known.acknowledged, &known.attempted)
    }
}

/// Why rows are not as they should be.
#[derive(Debug)]
pub enum Failed {
    /// The program refused to open the store and said this.
    Refused(String),
    /// The store opened, and the program said that it is damaged.
    Reported(String),
    /// The store opened and nobody said a word.
    Silent(String),
}

pub fn command(data: &Path, line: &str) -> Output {
    program().arg("--json").arg("--data").arg(data).args(line.split(' ')).output().unwrap()
}

pub fn check(
    data: &Path,
    acknowledged: &BTreeSet<String>,
    attempted: &BTreeSet<String>,
) -> Result<(), Failed> {
    let output = command(data, "workspace list");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        return Err(Failed::Refused(complaint));
    }
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed: BTreeSet<String> =
        listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    for name in acknowledged {
        if !listed.contains(name) {
            return Err(Failed::Silent(format!("{name} was acknowledged and is gone")));
        }
    }
    match listed.iter().find(|name| *name != "default" && !attempted.contains(*name)) {
        Some(name) => Err(Failed::Silent(format!("nobody ever wrote {name}"))),
        None => Ok(()),
    }
}
