//! What the hosts that share a store tell about themselves.

use crate::root_key::RootKeyId;

/// A host that shares the store, as it told about itself with its last sign of life.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostFacts {
    /// Its id, which it has until it ends.
    pub id: String,
    /// Version of its program; empty where the row has none.
    pub version: String,
    /// The newest schema of the database that its program knows. Without a proof it is the first one that
    /// a host could have.
    pub schema: u32,
    /// Name of its machine.
    pub machine: String,
    /// Id of its process there.
    pub process: Option<u64>,
    /// Whether it serves requests. The other hosts are commands that run.
    pub serves: bool,
    /// How long ago it gave its last sign of life, in milliseconds: the difference of the clocks of its
    /// machine and of this one.
    pub beat_age_ms: Option<u64>,
    /// Ids of the root keys that its configuration names. Without a proof there are none.
    pub root_keys: Vec<RootKeyId>,
    /// Digest of those parts of its configuration that must be equal on all hosts.
    pub configuration: Option<String>,
    /// Whether it has proved that it has opened the store.
    pub is_proven: bool,
}

/// The schema of a store in a database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoreSchema {
    /// Its number: that of the last migration made.
    pub number: u32,
    /// The number of the newest schema that this program knows.
    pub newest: u32,
}

impl HostFacts {
    /// Where it runs, for people: machine, process and version.
    pub fn place(&self) -> String {
        let HostFacts { id, version, machine, process, .. } = self;
        let process = process.map(|process| format!(", process {process}")).unwrap_or_default();
        match machine.as_str() {
            "" => format!("host {id}"),
            machine => format!("{machine}{process} (version {version})"),
        }
    }
}
