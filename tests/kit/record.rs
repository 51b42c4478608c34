//! The shim's record: file changes and bytes sent on sockets, in one order.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Create,
    Open,
    Truncate,
    Write,
    /// A sync of a file begins; it covers earlier writes.
    Sync,
    /// A sync of a folder begins; `data` lists the folder.
    SyncFolder,
    /// A sync has ended; `result` is 0 or an error number.
    Synced,
    /// `data` is the old path.
    Rename,
    Remove,
    MakeFolder,
    /// Bytes are about to be sent on the socket `ino`.
    Answer,
    /// The number of bytes of the preceding answer that were sent.
    Sent,
    /// A rule made a call fail; `data` names the call.
    Fault,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub thread: u64,
    pub ino: u64,
    pub offset: u64,
    pub result: i64,
    pub path: PathBuf,
    pub data: Vec<u8>,
}

impl Entry {
    /// Whether the entry is about a file with this name.
    pub fn is_of(&self, name: &str) -> bool {
        self.path.file_name().is_some_and(|found| found == name)
    }
}

pub struct Record {
    pub entries: Vec<Entry>,
    pub root: PathBuf,
}

/// A response as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The index of the entry before which no byte of the response was sent.
    pub at: usize,
    pub status: u16,
    pub body: Value,
}

const HEAD_BYTES: usize = 40;

impl Record {
    pub fn parse(mut bytes: &[u8], root: &Path) -> Self {
        let mut entries = Vec::new();
        // A killed process may leave an incomplete entry at the end.
        while let Some(entry) =
            bytes.get(..4).map(|head| u32::from_le_bytes(head.try_into().unwrap()) as usize)
        {
            let Some(frame) = bytes.get(..entry) else { break };
            entries.push(parse_entry(frame));
            bytes = &bytes[entry..];
        }
        Self { entries, root: root.to_owned() }
    }

    /// The responses on all connections in the order they were sent: HTTP/1 responses with a
    /// length, or single JSON documents.
    pub fn answers(&self) -> Vec<Sent> {
        let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
        let mut pending: BTreeMap<(u64, u64), (usize, &[u8])> = BTreeMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let call = (entry.thread, entry.ino);
            match entry.kind {
                Kind::Answer => {
                    pending.insert(call, (at, &entry.data));
                }
                Kind::Sent => {
                    let (at, data) = pending.remove(&call).unwrap();
                    let count = usize::try_from(entry.result).unwrap_or(0);
                    streams.entry(entry.ino).or_default().push(at, &data[..count]);
                }
                _ => {}
            }
        }
        // The process was killed during a call, so these bytes may have been sent.
        for ((_, ino), (at, data)) in pending {
            streams.entry(ino).or_default().push(at, data);
        }
        let mut answers: Vec<Sent> = streams.values().flat_map(Stream::answers).collect();
        answers.sort_by_key(|answer| answer.at);
        answers
    }
}

fn parse_entry(frame: &[u8]) -> Entry {
    let number = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().unwrap());
    let path_bytes = u16::from_le_bytes(frame[6..8].try_into().unwrap()) as usize;
    let (path, data) = frame[HEAD_BYTES..].split_at(path_bytes);
    let kind = match frame[4] {
        b'C' => Kind::Create,
        b'O' => Kind::Open,
        b'T' => Kind::Truncate,
        b'W' => Kind::Write,
        b'S' => Kind::Sync,
        b'D' => Kind::SyncFolder,
        b'E' => Kind::Synced,
        b'R' => Kind::Rename,
        b'U' => Kind::Remove,
        b'M' => Kind::MakeFolder,
        b'A' => Kind::Answer,
        b'a' => Kind::Sent,
        b'F' => Kind::Fault,
        other => panic!("an entry of kind {other}"),
    };
    Entry {
        kind,
        thread: number(8),
        result: number(16).cast_signed(),
        ino: number(24),
        offset: number(32),
        path: PathBuf::from(String::from_utf8(path.to_vec()).unwrap()),
        data: data.to_vec(),
    }
}

/// The bytes sent on one connection, with the entries they belong to.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// Offsets in `bytes` with the index of the entry that starts there.
    parts: Vec<(usize, usize)>,
}

impl Stream {
    fn push(&mut self, at: usize, data: &[u8]) {
        if !data.is_empty() {
            self.parts.push((self.bytes.len(), at));
            self.bytes.extend_from_slice(data);
        }
    }

    fn entry_at(&self, offset: usize) -> usize {
        let next = self.parts.partition_point(|(begin, _)| *begin <= offset);
        self.parts[next - 1].1
    }

    fn answers(&self) -> Vec<Sent> {
        let mut answers = Vec::new();
        let mut offset = 0;
        while offset < self.bytes.len() {
            let rest = &self.bytes[offset..];
            let Some((status, head, length)) = head_of(rest) else {
                let body = serde_json::from_slice(rest).unwrap_or(Value::Null);
                answers.push(Sent { at: self.entry_at(offset), status: 0, body });
                break;
            };
            let end = (head + length).min(rest.len());
            let body = serde_json::from_slice(&rest[head..end]).unwrap_or(Value::Null);
            answers.push(Sent { at: self.entry_at(offset), status, body });
            offset += end;
        }
        answers
    }
}

/// Status, length of the head and length of the body.
fn head_of(bytes: &[u8]) -> Option<(u16, usize, usize)> {
    if !bytes.starts_with(b"HTTP/1.") {
        return None;
    }
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Some((status, end, length.map_or(0, |length| length.parse().unwrap())))
}
