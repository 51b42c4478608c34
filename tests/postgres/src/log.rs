//! What the server writes to standard error.

use crate::{PATIENCE, Result, lock};
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use tokio::sync::Notify;

/// Later lines are in the file only.
const KEPT_BYTES: usize = 64 << 20;

/// A thread copies the server's lines into a file and keeps them here, so that tests can wait for a line.
pub(crate) struct Log {
    path: PathBuf,
    state: Mutex<State>,
    grown: Condvar,
    /// The same for tasks.
    told: Notify,
}

#[derive(Default)]
struct State {
    text: String,
    /// Some process of the server still has the log open.
    is_open: bool,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, state: Mutex::default(), grown: Condvar::new(), told: Notify::new() })
    }

    pub(crate) fn text(&self) -> String {
        lock(&self.state).text.clone()
    }

    pub(crate) fn length(&self) -> usize {
        lock(&self.state).text.len()
    }

    /// Copies what comes, until the last process of the server has ended.
    pub(crate) fn follow(self: &Arc<Self>, from: impl Read + Send + 'static) -> Result<()> {
        let file = File::options().create(true).append(true).open(&self.path)?;
        lock(&self.state).is_open = true;
        let log = Arc::clone(self);
        let name = "postgres log".to_owned();
        std::thread::Builder::new().name(name).spawn(move || {
            // What cannot be read or written is missing in the log; a test that waits for it fails and shows the rest.
            drop(log.copy(BufReader::new(from), file));
            lock(&log.state).is_open = false;
            log.grown.notify_all();
        })?;
        Ok(())
    }

    fn copy(&self, mut from: impl BufRead, mut file: File) -> std::io::Result<()> {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line)? > 0 {
            file.write_all(&line)?;
            self.add(&line);
            line.clear();
        }
        Ok(())
    }

    fn add(&self, line: &[u8]) {
        let mut state = lock(&self.state);
        if state.text.len() < KEPT_BYTES {
            state.text.push_str(&String::from_utf8_lossy(line));
        }
        self.grown.notify_all();
        self.told.notify_waiters();
    }

    /// Waits until the log has this text.
    pub(crate) async fn has(&self, wanted: &str) {
        loop {
            // Made before the look, so that no line falls between.
            let told = self.told.notified();
            if lock(&self.state).text.contains(wanted) {
                return;
            }
            told.await;
        }
    }

    /// Waits for this text after the first `from` bytes. `None`: the server has ended without it.
    pub(crate) fn until(&self, from: usize, wanted: &str) -> Result<Option<()>> {
        let has = |state: &State| state.text.get(from..).is_some_and(|text| text.contains(wanted));
        let waited =
            self.grown.wait_timeout_while(lock(&self.state), PATIENCE, |state| state.is_open && !has(state));
        let (state, waited) = waited.ok().context("a thread that read the log has panicked")?;
        match (has(&state), waited.timed_out()) {
            (true, _) => Ok(Some(())),
            (false, false) => Ok(None),
            (false, true) => bail!("no {wanted:?} within {PATIENCE:?} in the log:\n{}", state.text),
        }
    }

    /// Waits until every process of the server has ended, at most [`PATIENCE`].
    pub(crate) fn until_closed(&self) -> bool {
        let waited = self.grown.wait_timeout_while(lock(&self.state), PATIENCE, |state| state.is_open);
        waited.is_ok_and(|(state, _)| !state.is_open)
    }
}
