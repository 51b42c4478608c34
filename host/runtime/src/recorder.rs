//! Writes the recordings of failed calls into a directory, on a thread of its own. A recording
//! holds content, so its file is readable for this user only, and it is searched for the secrets
//! that were sent for the call before it is written.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use serde_json::Value;

use crate::recording::{RecordingHead, json};
use crate::services::SentSearch;

/// Length limit of all files of recordings together, in bytes.
const FILES_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Memory that calls which are being recorded may take together, in bytes.
const MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Number of recordings that wait to be written.
const WAITING_MAX: usize = 4;
/// Extension of recordings.
const EXTENSION: &str = "jsonl";
/// Extension of files that are not complete.
const TEMPORARY: &str = "new";

/// The directory of recordings, and the thread that writes into it.
pub(crate) struct Recorder {
    directory: PathBuf,
    memory: Arc<AtomicUsize>,
    /// The queue of the thread, which starts with the first recording. `None` if it cannot start.
    queue: OnceLock<Option<SyncSender<FailedCall>>>,
}

/// A failed call that is to be written.
pub(crate) struct FailedCall {
    pub(crate) head: RecordingHead,
    /// The entries, one a line.
    pub(crate) lines: Vec<u8>,
    /// Find the secrets that were sent for the call.
    pub(crate) searches: Vec<Box<dyn SentSearch>>,
    /// How many recordings of the plugin are kept.
    pub(crate) kept: u32,
    /// Holds the memory of `lines`.
    pub(crate) _memory: RecordingMemory,
}

/// A part of the memory for recordings. It is free again when this is dropped.
pub(crate) struct RecordingMemory {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl RecordingMemory {
    /// Takes more memory. False if there is no more.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        if self.all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MEMORY_BYTES_MAX {
            self.all.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// How much more there is now.
    pub(crate) fn left(&self) -> usize {
        MEMORY_BYTES_MAX.saturating_sub(self.all.load(Ordering::Relaxed))
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.all.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for RecordingMemory {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Recorder {
    /// For recordings in this directory, which is made when there is one to write.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), memory: Arc::default(), queue: OnceLock::new() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn memory(&self) -> RecordingMemory {
        RecordingMemory { all: Arc::clone(&self.memory), bytes: 0 }
    }

    /// Hands a recording to the thread that writes. Never waits.
    pub(crate) fn submit(&self, call: FailedCall) {
        let queue = self.queue.get_or_init(|| start(self.directory.clone()));
        let plugin = call.head.plugin.clone();
        if queue.as_ref().is_none_or(|queue| queue.try_send(call).is_err()) {
            tracing::warn!(plugin, "a failing call was not recorded: others wait to be written");
        }
    }
}

/// Starts the thread. It ends with the recorder, after what waits is written.
fn start(directory: PathBuf) -> Option<SyncSender<FailedCall>> {
    let (queue, calls) = sync_channel::<FailedCall>(WAITING_MAX);
    let write = move || {
        let mut number = next_number(&directory);
        for call in calls {
            let plugin = call.head.plugin.clone();
            let kept = keep(&directory, number, &call);
            number = number.saturating_add(1);
            match kept {
                Ok(Some(file)) => {
                    tracing::warn!(plugin, file = %file.display(), "a failing call was recorded")
                }
                Ok(None) => tracing::warn!(
                    plugin,
                    "a failing call was not recorded: a secret that was sent for it occurs in its recording"
                ),
                Err(error) => {
                    tracing::warn!(plugin, directory = %directory.display(), %error, "a failing call could not be recorded")
                }
            }
        }
    };
    let thread = thread::Builder::new().name("recordings".to_owned()).spawn(write);
    thread.inspect_err(|error| tracing::warn!(%error, "recordings cannot be written")).ok().map(|_| queue)
}

/// Writes a recording and removes the oldest ones beyond the limits. Returns the file, or `None` if
/// a secret occurs in the recording.
fn keep(directory: &Path, number: u64, call: &FailedCall) -> io::Result<Option<PathBuf>> {
    let FailedCall { head, lines, searches, kept, .. } = call;
    let first = serde_json::to_vec(head)?;
    if !searches.is_empty() && has_secret(&first, lines, searches)? {
        return Ok(None);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    let name = format!("{}.{:013}-{number:06}", head.plugin, now_ms());
    let temporary = directory.join(format!("{name}.{TEMPORARY}"));
    let path = directory.join(format!("{name}.{EXTENSION}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    #[cfg(debug_assertions)]
    cofferdam_store::canaries::search("a recording", &[&first[..], lines].concat());
    let written = [&first[..], b"\n", lines].iter().try_for_each(|part| file.write_all(part));
    let done = written.and_then(|()| fs::rename(&temporary, &path));
    prune(directory, &head.plugin, *kept as usize);
    done.map(|()| Some(path))
}

fn now_ms() -> u128 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis()
}

/// Whether a value that was sent occurs anywhere: in a text or in bytes, in the lines as they are
/// written, or over several pieces of the same body.
fn has_secret(head: &[u8], lines: &[u8], searches: &[Box<dyn SentSearch>]) -> io::Result<bool> {
    let mut is_found = false;
    let mut see = |text: &str| is_found |= searches.iter().any(|search| search.finds(text));
    let mut joined: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for line in std::iter::once(head).chain(lines.split(|byte| *byte == b'\n')) {
        if line.is_empty() {
            continue;
        }
        see(&String::from_utf8_lossy(line));
        let step = serde_json::from_slice::<Value>(line)?;
        json::each_text(&step, &mut see);
        // Pieces that one function gets, or that one import gives for the same question.
        if let Some(call) = step.get("call") {
            let pieces = joined.entry(call["function"].to_string()).or_default();
            json::join_bytes(&call["input"], pieces);
        } else if let Some(import) = step.get("import") {
            let pieces = joined.entry(format!("{} {}", import["name"], import["sent"])).or_default();
            json::join_bytes(&import["answer"], pieces);
        }
    }
    joined.values().for_each(|pieces| see(&String::from_utf8_lossy(pieces)));
    Ok(is_found)
}

/// Removes the oldest recordings of the plugin beyond `kept`, the oldest of all beyond the limit of
/// bytes, and files that were not completed. Only one thread writes into the directory.
fn prune(directory: &Path, plugin: &str, kept: usize) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut recordings = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == TEMPORARY) {
            drop(fs::remove_file(&path));
        } else if let (Some(name), Ok(metadata)) = (name_of(&path), entry.metadata()) {
            recordings.push((name.number, name.time, name.plugin, metadata.len(), path));
        }
    }
    recordings.sort_unstable_by(|one, other| other.cmp(one));
    let (mut own, mut bytes) = (0, 0_u64);
    for (_, _, owner, length, path) in recordings {
        own += usize::from(owner == plugin);
        bytes = bytes.saturating_add(length);
        if bytes > FILES_BYTES_MAX || (owner == plugin && own > kept) {
            // It may have been removed by hand.
            drop(fs::remove_file(path));
        }
    }
}

/// The number of the next recording: higher than those of the recordings in the directory, of which
/// the lowest is the oldest. The clock may have been set back since they were written.
fn next_number(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| Some(name_of(&entry.path())?.number));
    numbers.max().map_or(0, |number| number.saturating_add(1))
}

/// What the name of a recording says: `PLUGIN.TIME-NUMBER.jsonl`.
struct RecordingName {
    plugin: String,
    /// Unix time in milliseconds.
    time: u64,
    number: u64,
}

fn name_of(path: &Path) -> Option<RecordingName> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let (plugin, rest) = name.rsplit_once('.')?;
    let (time, number) = rest.split_once('-')?;
    Some(RecordingName { plugin: plugin.to_owned(), time: time.parse().ok()?, number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Finds(&'static str);

    impl SentSearch for Finds {
        fn finds(&self, text: &str) -> bool {
            text.contains(self.0)
        }
    }

    fn failed(plugin: &str, lines: &[u8], secret: Option<&'static str>) -> FailedCall {
        let head = RecordingHead {
            cofferdam_recording: 1,
            plugin: plugin.into(),
            component_sha256: String::new(),
            contract: String::new(),
            host_version: String::new(),
            request_id: String::new(),
            workspace: String::new(),
            now_ms: 0,
            grant: crate::recording::RecordedGrant::default(),
            manifest: String::new(),
        };
        let searches = secret.map(|secret| Box::new(Finds(secret)) as Box<dyn SentSearch>);
        let memory = RecordingMemory { all: Arc::default(), bytes: 0 };
        FailedCall {
            head,
            lines: lines.to_vec(),
            searches: searches.into_iter().collect(),
            kept: 2,
            _memory: memory,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_last_recordings_of_each_plugin_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("recordings");
        let mut files = Vec::new();
        for (number, plugin) in (0..).zip(["a", "a.b", "a", "a", "a"]) {
            files.push(keep(&directory, number, &failed(plugin, b"{}\n", None)).unwrap().unwrap());
        }
        let kept = [1, 3, 4].map(|index: usize| files[index].file_name().unwrap().to_str().unwrap());
        let mut kept = kept.to_vec();
        kept.sort_unstable();
        assert_eq!(names(&directory), kept);
    }

    #[test]
    fn the_oldest_recordings_make_room() {
        let directory = tempfile::tempdir().unwrap();
        for (name, bytes) in
            [("old.0000000000001-0.jsonl", 1), ("big.0000000000002-0.jsonl", FILES_BYTES_MAX - 8)]
        {
            fs::File::create(directory.path().join(name)).unwrap().set_len(bytes).unwrap();
        }
        fs::write(directory.path().join("left.new"), "").unwrap();
        let number = next_number(directory.path());
        let file = keep(directory.path(), number, &failed("p", b"{}\n", None)).unwrap().unwrap();
        assert_eq!(names(directory.path()), [file.file_name().unwrap().to_str().unwrap()]);
    }

    #[test]
    fn a_new_recording_stays_although_the_clock_was_set_back() {
        let directory = tempfile::tempdir().unwrap();
        for number in 5..7 {
            let name = format!("p.9999999999999-{number:06}.jsonl");
            fs::write(directory.path().join(name), "{}").unwrap();
        }
        let number = next_number(directory.path());
        assert_eq!(number, 7);
        let file = keep(directory.path(), number, &failed("p", b"{}\n", None)).unwrap().unwrap();
        let new = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(names(directory.path()), [new, "p.9999999999999-000006.jsonl"]);
    }

    #[test]
    fn a_secret_in_a_text_or_in_bytes_keeps_a_recording_from_being_written() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("recordings");
        let written =
            |lines: &[u8]| keep(&directory, 0, &failed("p", lines, Some("se\"cret"))).unwrap().is_some();
        assert!(!written(br#"{"a":[{"b":"x se\"cret x"}]}"#));
        assert!(!written(br#"{"se\"cret":1}"#));
        assert!(!written(br#"{"a":{"$base64":"/3NlImNyZXQ="}}"#));
        assert!(!directory.exists());
        assert!(written(br#"{"a":"secret"}"#));
    }

    #[test]
    fn a_secret_is_found_over_the_pieces_of_one_body_and_not_of_two() {
        let piece = |exchange: u32, text: &str| {
            let answer = serde_json::json!({"Ok": {"$text": text}});
            serde_json::json!({"import": {"name": "http-stream.read", "sent": exchange, "answer": answer, "waits": false}})
        };
        let fed = |text: &str| {
            let frame = serde_json::json!({"name": "delta", "data": {"$text": text}});
            serde_json::json!({"call": {"function": "decoder.feed", "input": [[frame]]}})
        };
        let has = |steps: &[Value]| {
            let lines: Vec<String> = steps.iter().map(Value::to_string).collect();
            has_secret(b"{}", lines.join("\n").as_bytes(), &[Box::new(Finds("s3cret-value"))]).unwrap()
        };
        assert!(has(&[piece(1, "a s3cret-value")]));
        assert!(has(&[piece(1, "a s3cr"), piece(2, "other"), piece(1, "et-value b")]));
        assert!(has(&[fed("a s3cr"), fed("et-value b")]));
        assert!(!has(&[piece(1, "a s3cr"), piece(2, "et-value b")]));
        assert!(!has(&[piece(1, "s3cr"), fed("et-value")]));
    }
}
