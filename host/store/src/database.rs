//! The database of a store on PostgreSQL, as a configuration names it. A program that was built without
//! the cargo feature `postgres` refuses every URL.

#[cfg(not(feature = "postgres"))]
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
#[cfg(feature = "postgres")]
use std::sync::Arc;

#[cfg(feature = "postgres")]
use crate::postgres;
use crate::secret::Secret;

/// `postgres://USER@HOST[:PORT][,HOST[:PORT]...]/DATABASE[?sslmode=verify-full|disable]`, without a
/// password. Each host is a name, an IP address, or the directory of a Unix socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DatabaseUrl(Parsed);

#[cfg(feature = "postgres")]
type Parsed = postgres::DatabaseUrl;
#[cfg(not(feature = "postgres"))]
type Parsed = Infallible;

/// Why a database cannot be used at all. The text repeats nothing of the URL, because a password can
/// stand in every part of a malformed one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DatabaseError {
    /// This program was built without the feature.
    #[error("this program was built without the cargo feature `postgres`")]
    NotBuilt,
    /// The URL has a password.
    #[error("the URL has a password: take it out and name its source in `password`")]
    HasPassword,
    /// The URL is malformed.
    #[error("{0}")]
    Url(String),
    /// The password is not UTF-8, or has a character that the protocol cannot carry.
    #[error("the password of the database is not UTF-8 text without a zero byte")]
    Password,
    /// A file of root certificates, counted from 1, or the settings for TLS.
    #[error("{0}")]
    Tls(String),
}

impl FromStr for DatabaseUrl {
    type Err = DatabaseError;

    #[cfg(feature = "postgres")]
    fn from_str(text: &str) -> Result<DatabaseUrl, DatabaseError> {
        let url =
            postgres::DatabaseUrl::parse(text).map_err(|error| DatabaseError::Url(error.to_string()))?;
        if url.password.is_some() { Err(DatabaseError::HasPassword) } else { Ok(DatabaseUrl(url)) }
    }

    #[cfg(not(feature = "postgres"))]
    fn from_str(_: &str) -> Result<DatabaseUrl, DatabaseError> {
        Err(DatabaseError::NotBuilt)
    }
}

impl DatabaseUrl {
    /// The hosts of the database, each as `HOST:PORT`, in the order in which they are tried.
    pub fn hosts(&self) -> Vec<String> {
        #[cfg(feature = "postgres")]
        return self.0.hosts.iter().map(ToString::to_string).collect();
        #[cfg(not(feature = "postgres"))]
        match self.0 {}
    }
}

/// How requests of prepaid workspaces and limited keys reserve what they may cost. Should be the same on all
/// hosts that share a store: hosts that differ keep the limits, but one with [`LedgerMode::Exact`] does not
/// ask others to give back what they have reserved ahead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LedgerMode {
    /// With a commit before each turn of a request is sent.
    #[default]
    Exact,
    /// Out of what the host has reserved ahead.
    Leased,
}

/// A database and what it takes to connect to it. Clones share their connections' settings.
#[derive(Clone)]
pub struct Database {
    #[cfg(feature = "postgres")]
    pub(crate) connector: Arc<postgres::Database>,
    #[cfg(not(feature = "postgres"))]
    pub(crate) connector: Infallible,
    pub(crate) hosts: Vec<String>,
    /// See [`Database::with_witness`].
    #[cfg(feature = "postgres")]
    pub(crate) witness: Option<PathBuf>,
    /// See [`Database::with_ledger`].
    #[cfg(feature = "postgres")]
    pub(crate) ledger: LedgerMode,
    /// See [`Database::with_cache`].
    #[cfg(feature = "postgres")]
    pub(crate) kept_bytes_max: u64,
}

impl Database {
    /// Prepares connections and makes none. `roots` are PEM files with certificates that are trusted
    /// besides those of the system. Certificates are always verified; connections that do not leave
    /// the machine are not encrypted, unless the URL asks for it.
    ///
    /// # Errors
    /// [`DatabaseError::Password`], [`DatabaseError::Tls`], [`DatabaseError::NotBuilt`].
    #[cfg(feature = "postgres")]
    pub fn new(
        url: &DatabaseUrl,
        password: Option<&Secret>,
        roots: &[Vec<u8>],
    ) -> Result<Database, DatabaseError> {
        let connector = Arc::new(Database::connector(url, password, roots)?);
        Ok(Database::of(connector, url))
    }

    /// Like [`Database::new`], and backups are read from a standby of the database, to which connections
    /// need not be able to write. Password and roots are the same.
    ///
    /// # Errors
    /// Those of [`Database::new`].
    #[cfg(feature = "postgres")]
    pub fn with_standby(
        url: &DatabaseUrl,
        standby: &DatabaseUrl,
        password: Option<&Secret>,
        roots: &[Vec<u8>],
    ) -> Result<Database, DatabaseError> {
        let reading = Database::connector(standby, password, roots)?.reading();
        let connector = Arc::new(Database::connector(url, password, roots)?.with_standby(reading));
        Ok(Database::of(connector, url))
    }

    #[cfg(feature = "postgres")]
    fn of(connector: Arc<postgres::Database>, url: &DatabaseUrl) -> Database {
        let (hosts, ledger) = (url.hosts(), LedgerMode::Exact);
        Database { connector, hosts, witness: None, ledger, kept_bytes_max: 0 }
    }

    #[cfg(feature = "postgres")]
    fn connector(
        url: &DatabaseUrl,
        password: Option<&Secret>,
        roots: &[Vec<u8>],
    ) -> Result<postgres::Database, DatabaseError> {
        let mut parsed = url.0.clone();
        if let Some(password) = password {
            let text = std::str::from_utf8(password.expose()).map_err(|_| DatabaseError::Password)?;
            if text.contains('\0') {
                return Err(DatabaseError::Password);
            }
            parsed.password = Some(postgres::Password::new(text.to_owned()));
        }
        let connector = postgres::Database::new(&parsed, roots);
        connector.map_err(|error| DatabaseError::Tls(error.to_string()))
    }

    /// See the other build.
    ///
    /// # Errors
    /// [`DatabaseError::NotBuilt`].
    #[cfg(not(feature = "postgres"))]
    pub fn new(url: &DatabaseUrl, _: Option<&Secret>, _: &[Vec<u8>]) -> Result<Database, DatabaseError> {
        match url.0 {}
    }

    /// See the other build.
    ///
    /// # Errors
    /// [`DatabaseError::NotBuilt`].
    #[cfg(not(feature = "postgres"))]
    pub fn with_standby(
        url: &DatabaseUrl,
        _: &DatabaseUrl,
        _: Option<&Secret>,
        _: &[Vec<u8>],
    ) -> Result<Database, DatabaseError> {
        match url.0 {}
    }
}

impl Database {
    /// Keeps what this host knows to be durable in a file of its data directory, so that a start notices a
    /// database that was set back. For a host that serves; made where it is missing.
    #[must_use]
    #[cfg(feature = "postgres")]
    pub fn with_witness(self, file: PathBuf) -> Database {
        Database { witness: Some(file), ..self }
    }

    /// See the other build.
    #[must_use]
    #[cfg(not(feature = "postgres"))]
    pub fn with_witness(self, _: PathBuf) -> Database {
        self
    }
}

impl Database {
    /// Sets how requests reserve credit. [`LedgerMode::Exact`] without this.
    #[must_use]
    #[cfg(feature = "postgres")]
    pub fn with_ledger(self, ledger: LedgerMode) -> Database {
        Database { ledger, ..self }
    }

    /// See the other build.
    #[must_use]
    #[cfg(not(feature = "postgres"))]
    pub fn with_ledger(self, _: LedgerMode) -> Database {
        self
    }

    /// Keeps at most so many bytes of rows of secrets in memory, with their values encrypted, for a host that
    /// serves. 0, as without this call, reads them from the database at each use.
    #[must_use]
    #[cfg(feature = "postgres")]
    pub fn with_cache(self, bytes_max: u64) -> Database {
        Database { kept_bytes_max: bytes_max, ..self }
    }

    /// See the other build.
    #[must_use]
    #[cfg(not(feature = "postgres"))]
    pub fn with_cache(self, _: u64) -> Database {
        self
    }
}

#[cfg(all(test, feature = "postgres"))]
impl Database {
    /// A database of a server that a test has started.
    #[expect(clippy::unwrap_used, reason = "for tests only")]
    pub(crate) fn of_test(database: &cofferdam_test_postgres::Database) -> Database {
        let password = Secret::from(database.password.clone());
        Database::new(&url_of(database), Some(&password), &[]).unwrap().with_cache(1 << 20)
    }

    /// The same, and backups are read from a standby on another port of this machine.
    #[expect(clippy::unwrap_used, reason = "for tests only")]
    pub(crate) fn of_pair(database: &cofferdam_test_postgres::Database, standby: u16) -> Database {
        let password = Secret::from(database.password.clone());
        let standby = url_of(&database.at(standby));
        Database::with_standby(&url_of(database), &standby, Some(&password), &[]).unwrap()
    }
}

#[cfg(all(test, feature = "postgres"))]
#[expect(clippy::unwrap_used, reason = "for tests only")]
fn url_of(database: &cofferdam_test_postgres::Database) -> DatabaseUrl {
    let url = format!("postgres://{}@127.0.0.1:{}/{}", database.user, database.port, database.name);
    url.parse().unwrap()
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        let error = "postgres://u:hunter2@db/d".parse::<DatabaseUrl>().unwrap_err();
        assert_eq!(error, DatabaseError::HasPassword);
        assert!(!error.to_string().contains("hunter2"));
    }

    #[test]
    fn the_hosts_of_a_url_are_named_with_their_ports() {
        let url: DatabaseUrl = "postgres://u@db1,[::1]:7,%2Frun%2Fpg/d".parse().unwrap();
        assert_eq!(url.hosts(), ["db1:5432", "[::1]:7", "/run/pg:5432"]);
    }

    #[test]
    fn a_password_is_shown_by_no_type() {
        let url: DatabaseUrl = "postgres://u@127.0.0.1/d".parse().unwrap();
        let database = Database::new(&url, Some(&Secret::from("hunter2".to_owned())), &[]).unwrap();
        assert!(!format!("{database:?} {url:?}").contains("hunter2"));
        let refused = Database::new(&url, Some(&Secret::new(vec![0xff])), &[]);
        assert_eq!(refused.err(), Some(DatabaseError::Password));
    }
}
