//! `[store]`: where the store is, and settings about its disk.

use cofferdam_store::{Database, DatabaseError, DatabaseUrl, PassphraseSource, Secret};

use super::document::{ConfigSpan, Table};
use super::egress::roots;
use super::{ConfigError, Problem};
use crate::hygiene;

/// The maximum of `free_bytes_min`: 1 EiB.
const FREE_BYTES_MAX: u64 = 1 << 60;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// With less free disk space, writes by tenants and requests of prepaid workspaces are refused;
    /// 0 turns the check off. Without effect on a database.
    pub free_bytes_min: u64,
    /// The database of the store; without one, the store is in the data directory.
    pub database: Option<DatabaseConfig>,
}

/// The database of the store. Its password is only named here.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    pub url: DatabaseUrl,
    password: Option<(PassphraseSource, ConfigSpan)>,
    /// PEM files with certificates that are trusted beside the system's.
    roots: Vec<Vec<u8>>,
    /// Where the URL is.
    place: ConfigSpan,
}

/// Where something stands in the file makes no difference.
impl PartialEq for DatabaseConfig {
    fn eq(&self, other: &Self) -> bool {
        let password = |it: &Self| it.password.as_ref().map(|(source, _)| source.clone());
        (&self.url, password(self), &self.roots) == (&other.url, password(other), &other.roots)
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
        let prepared = Database::new(&self.url, password.as_ref(), &self.roots);
        prepared.map_err(|error| {
            let at_password = self.password.as_ref().filter(|_| error == DatabaseError::Password);
            invalid(at_password.map_or(&self.place, |(_, place)| place), error.to_string())
        })
    }
}

pub(super) fn read(table: &Table<'_>) -> StoreConfig {
    StoreConfig {
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
    let Some(url) = table.text("url") else {
        for (key, is_there) in [("password", password.is_some()), ("roots", !roots.is_empty())] {
            if is_there {
                table.value(key, ()).reject("without `url` there is no database that it is about");
            }
        }
        return None;
    };
    let place = url.place();
    match url.value.parse() {
        Ok(parsed) => Some(DatabaseConfig { url: parsed, password, roots, place }),
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
