//! `[vault]`: the root key, and limits of the vault.

use std::path::Path;

use cofferdam_store::{PassphraseSource, RootKeySource, VaultQuota};

use super::document::Table;
use crate::hygiene;

/// The maximum of the rate limits.
const PER_MINUTE_MAX: u64 = u32::MAX as u64;
/// The maximum of `secrets_max`. With more than the default of 10,000, clients cannot page to the
/// end of a list.
const SECRETS_MAX: u64 = 1_000_000;
/// The maximum of `bytes_max`: 1 TiB.
const BYTES_MAX: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub struct VaultConfig {
    /// If false, every vault route answers 503.
    pub enabled: bool,
    /// If false, clients cannot change anything in the vault.
    pub writes: bool,
    /// Read requests of one key per minute; 0 means no limit.
    pub reads_per_minute: u64,
    /// Write requests of one key per minute; 0 means no limit.
    pub writes_per_minute: u64,
    /// How much one vault may hold.
    pub quota: VaultQuota,
    pub root_key: RootKeySource,
    /// The source of the previous root key, during a rotation.
    pub root_key_previous: Option<RootKeySource>,
}

impl VaultConfig {
    /// Reads root keys that are in variables and removes those from the process environment. Must
    /// be called before other threads use the environment.
    pub(crate) fn take_variables(&mut self) {
        for source in std::iter::once(&mut self.root_key).chain(&mut self.root_key_previous) {
            source.take_variable(hygiene::take_variable);
        }
    }
}

pub(super) fn read(table: &Table<'_>, data: &Path) -> VaultConfig {
    let root_key = source(table, "root_key").unwrap_or_else(|| RootKeySource::File(data.join("root.key")));
    let root_key_previous = source(table, "root_key_previous");
    let limits = table.table("rate_limit");
    let per_minute = |key| limits.integer(key, 0..=PER_MINUTE_MAX).unwrap_or(0);
    VaultConfig {
        enabled: table.flag("enabled"),
        writes: table.flag("writes"),
        reads_per_minute: per_minute("reads_per_minute"),
        writes_per_minute: per_minute("writes_per_minute"),
        quota: VaultQuota {
            secrets_max: table.integer("secrets_max", 1..=SECRETS_MAX).unwrap_or(1),
            bytes_max: table.integer("bytes_max", 1..=BYTES_MAX).unwrap_or(1),
        },
        root_key,
        root_key_previous,
    }
}

fn source(table: &Table<'_>, key: &'static str) -> Option<RootKeySource> {
    let written = table.text(key)?;
    match written.value.parse() {
        Ok(source) => Some(relative_to(table.directory(), source)),
        Err(_) => {
            written.reject("expected file:PATH, env:NAME, fd:N or passphrase:SOURCE");
            None
        }
    }
}

fn relative_to(directory: &Path, source: RootKeySource) -> RootKeySource {
    match source {
        RootKeySource::File(path) => RootKeySource::File(directory.join(path)),
        RootKeySource::Passphrase { from: PassphraseSource::File(path) } => {
            RootKeySource::Passphrase { from: PassphraseSource::File(directory.join(path)) }
        }
        source => source,
    }
}
