//! What a server is started with.

use crate::certificate::Certificate;
use crate::{Pair, Result, Server};

/// How a server is to run. Without settings it is a fresh one that syncs to disk and offers no TLS.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) tls: Option<Certificate>,
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of `postgresql.conf`. The last one of a name counts.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Commits do not wait for the disk. What was committed survives the death of all processes, not of the machine. A
    /// server that was killed restarts in a tenth of the time.
    pub fn without_sync(self) -> Self {
        self.setting("fsync", "off")
    }

    /// TCP connections must use TLS, and get this certificate.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = Some(certificate.clone());
        self
    }

    /// See [`Server::start`].
    pub fn start(self) -> Result<Server> {
        Server::start_with(&self)
    }

    /// See [`Pair::start`].
    pub fn start_pair(self) -> Result<Pair> {
        Pair::start_with(&self)
    }

    /// Starts a standby of a primary, on a copy of it. `name` is that of the standby and of its replication slot:
    /// lower-case letters, digits and `_`. Commits wait for it only if the primary's `synchronous_standby_names`
    /// say so.
    ///
    /// # Errors
    /// The primary does not answer or has a slot of this name, or the standby does not start.
    pub fn start_standby_of(&self, primary: &Server, name: &str) -> Result<Server> {
        crate::pair::follow(primary, name, self)
    }

    /// The text of `postgresql.conf`.
    pub(crate) fn configuration(&self, port: u16, folder: &str) -> String {
        let port = port.to_string();
        let mut own = vec![
            ("listen_addresses", "127.0.0.1"),
            ("port", &port),
            ("unix_socket_directories", folder),
            ("shared_buffers", "16MB"),
            // A test process with a test for each of many processors shares one server.
            ("max_connections", "500"),
            // A standby asks again soon when its primary comes back.
            ("wal_retrieve_retry_interval", "100ms"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
        ];
        if self.tls.is_some() {
            own.extend([
                ("ssl", "on"),
                ("ssl_cert_file", "../server.crt"),
                ("ssl_key_file", "../server.key"),
            ]);
        }
        let given = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let line = |(name, value): (&str, &str)| format!("{name} = {}\n", quoted(value));
        own.into_iter().chain(given).map(line).collect()
    }

    /// The text of `pg_hba.conf`: who may come, and how they show who they are.
    pub(crate) fn access(&self) -> String {
        let tcp = if self.tls.is_some() { "hostssl" } else { "host" };
        format!(
            "local all all trust\nlocal replication all trust\n\
             {tcp} all all 127.0.0.1/32 scram-sha-256\n{tcp} replication all 127.0.0.1/32 scram-sha-256\n"
        )
    }
}

/// A text as configuration files and statements write it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
