//! `[store]`: where the store is, and settings about its disk.

use cofferdam_store::{Database, DatabaseError, DatabaseUrl, LedgerMode, PassphraseSource, Secret};

use super::document::{ConfigSpan, Table};
use super::egress::roots;
use super::{ConfigError, Problem};
use crate::hygiene;

/// The maximum of `free_bytes_min`: 1 EiB.
const FREE_BYTES_MAX: u64 = 1 << 60;

/// The maximum of `stale_ms`: one hour.
const STALE_MS_MAX: u64 = 3_600_000;
/// The maximum of `cache_mib`: 1 TiB.
const CACHE_MIB_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// With less free disk space, writes by tenants and requests of prepaid workspaces are refused;
    /// 0 turns the check off. Without effect on a database.
    pub free_bytes_min: u64,
    /// How long after the end of its contact with the database a host serves requests of models by what it
    /// knows, in milliseconds. 0 without a database.
    pub stale_ms: u64,
    /// The database of the store; without one, the store is in the data directory.
    pub database: Option<DatabaseConfig>,
}

/// The database of the store. Its password is only named here.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    pub url: DatabaseUrl,
    /// The server that backups are read from.
    backup_url: Option<DatabaseUrl>,
    password: Option<(PassphraseSource, ConfigSpan)>,
    /// PEM files with certificates that are trusted beside the system's.
    roots: Vec<Vec<u8>>,
    ledger: LedgerMode,
    /// Rows of secrets that a host keeps in memory, at most, in mebibytes.
    cache_mib: u64,
    /// Where the URL is.
    place: ConfigSpan,
}

/// Where something stands in the file makes no difference.
impl PartialEq for DatabaseConfig {
    fn eq(&self, other: &Self) -> bool {
        let password = |it: &Self| it.password.as_ref().map(|(source, _)| source.clone());
        let others =
            |it: &Self| (it.url.clone(), it.backup_url.clone(), it.roots.clone(), it.ledger, it.cache_mib);
        password(self) == password(other) && others(self) == others(other)
    }
}

impl Eq for DatabaseConfig {}

impl StoreConfig {
    /// Reads a password that is in a variable and removes it from the process environment. Must be
    /// called before other threads use the environment.
    pub(crate) fn take_variables(&mut self) {
        if let Some(DatabaseConfig { password: Some((source, _)), .. }) = &mut self.database {
            source.take_variable(hygiene::take_variable);
        }
    }
}

impl DatabaseConfig {
    /// Reads the password and prepares connections.
    ///
    /// # Errors
    ///
    /// The password cannot be read or used, or the files of `roots` cannot.
    pub(crate) fn prepare(&self) -> Result<Database, ConfigError> {
        let invalid = |place: &ConfigSpan, message| {
            ConfigError::Invalid(vec![Problem { place: place.clone(), message }])
        };
        let password: Option<Secret> = match &self.password {
            Some((source, place)) => Some(source.read().map_err(|error| invalid(place, error.to_string()))?),
            None => None,
        };
        let (url, password, roots) = (&self.url, password.as_ref(), &self.roots);
        let prepared = match &self.backup_url {
            Some(standby) => Database::with_standby(url, standby, password, roots),
            None => Database::new(url, password, roots),
        };
        prepared.map(|database| database.with_ledger(self.ledger).with_cache(self.cache_mib << 20)).map_err(
            |error| {
                let at_password = self.password.as_ref().filter(|_| error == DatabaseError::Password);
                invalid(at_password.map_or(&self.place, |(_, place)| place), error.to_string())
            },
        )
    }
}

pub(super) fn read(table: &Table<'_>) -> StoreConfig {
    StoreConfig {
        stale_ms: table.integer("stale_ms", 0..=STALE_MS_MAX).unwrap_or(0),
        free_bytes_min: table.integer("free_bytes_min", 0..=FREE_BYTES_MAX).unwrap_or(0),
        database: database(table),
    }
}

fn database(table: &Table<'_>) -> Option<DatabaseConfig> {
    let password = table.text("password").and_then(|written| match written.value.parse() {
        Ok(PassphraseSource::File(path)) => {
            Some((PassphraseSource::File(table.directory().join(path)), written.place()))
        }
        Ok(source) => Some((source, written.place())),
        Err(_) => {
            written.reject("expected file:PATH, env:NAME or fd:N");
            None
        }
    });
    let roots = roots(table);
    let ledger = table.choice("ledger", [("exact", LedgerMode::Exact), ("leased", LedgerMode::Leased)]);
    let backup_url = table.text("backup_url").and_then(|written| match written.value.parse() {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            let error: DatabaseError = error;
            written.reject(error.to_string());
            None
        }
    });
    let cache_mib = table.integer("cache_mib", 0..=CACHE_MIB_MAX).unwrap_or(0);
    let Some(url) = table.text("url") else {
        let is_stale = table.integer("stale_ms", 0..=STALE_MS_MAX).is_some_and(|ms| ms > 0);
        let given = [
            ("password", password.is_some()),
            ("roots", !roots.is_empty()),
            ("ledger", ledger == LedgerMode::Leased),
            ("backup_url", backup_url.is_some()),
            ("stale_ms", is_stale),
        ];
        for (key, is_there) in given {
            if is_there {
                table.value(key, ()).reject("without `url` there is no database that it is about");
            }
        }
        return None;
    };
    let place = url.place();
    match url.value.parse() {
        Ok(parsed) => {
            Some(DatabaseConfig { url: parsed, backup_url, password, roots, ledger, cache_mib, place })
        }
        Err(error @ DatabaseError::NotBuilt) => {
            url.reject(format!("{error}: the store can only be in the data directory"));
            None
        }
        Err(error) => {
            url.reject(error.to_string());
            None
        }
    }
}
