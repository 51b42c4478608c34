//! Connections to the database.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::Failure;
use super::prepared::PreparedStatements;
use super::url::{DatabaseHost, DatabaseUrl};

/// How long one host may take for a whole connection: address, socket, TLS, login, and its answer
/// whether it takes writes. The addresses of its name share this time.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// How long sent bytes may stay unacknowledged by the other machine.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);

/// Why connections of this kind cannot be made at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A file of root certificates has none, or something else.
    #[error("file {0} of root certificates of the store has no certificate that can be a root")]
    Root(usize),
    /// No root certificate is there to verify the server with.
    #[error("the system has no root certificates to verify the database's certificate with")]
    NoRoots,
    /// The TLS library refused its settings.
    #[error("the TLS library refused its settings")]
    Settings,
}

/// The database: its hosts, and how to connect to them.
pub(crate) struct Database {
    hosts: Vec<(DatabaseHost, Config)>,
    tls: Option<MakeRustlsConnect>,
    uses_tls: Vec<bool>,
    /// The host that was connected to last.
    last: AtomicUsize,
    /// How often [`Database::connect_anew`] was asked for.
    generation: AtomicU64,
    /// What backups are read from.
    standby: Option<Arc<Database>>,
    /// Whether prepared statements turned out not to be there when they were used.
    loses_prepared: AtomicBool,
}

impl Database {
    /// Prepares connections. `roots` are PEM files with certificates that are trusted besides those
    /// of the system. Connects to nothing.
    pub(crate) fn new(url: &DatabaseUrl, roots: &[Vec<u8>]) -> Result<Database, TlsError> {
        let uses_tls: Vec<bool> = url.hosts.iter().map(|host| host.uses_tls(url.tls)).collect();
        let tls = if uses_tls.contains(&true) { Some(tls(roots)?) } else { None };
        let hosts = url.hosts.iter().map(|host| (host.clone(), config(url, host)));
        Ok(Database {
            hosts: hosts.collect(),
            tls,
            uses_tls,
            last: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            standby: None,
            loses_prepared: AtomicBool::new(false),
        })
    }

    /// The same for connections that only read, also to servers that take no writes.
    pub(crate) fn reading(self) -> Database {
        let any = |(host, mut config): (DatabaseHost, Config)| {
            config.target_session_attrs(TargetSessionAttrs::Any);
            (host, config)
        };
        Database { hosts: self.hosts.into_iter().map(any).collect(), ..self }
    }

    /// Has backups read from there.
    pub(crate) fn with_standby(self, standby: Database) -> Database {
        Database { standby: Some(Arc::new(standby)), ..self }
    }

    pub(super) fn standby(&self) -> Option<&Arc<Database>> {
        self.standby.as_ref()
    }

    /// Connects in place of a connection that ended. The server may have been replaced, so connections from
    /// before are not [`Database::is_current`] any more.
    pub(super) async fn connect_anew(&self) -> Result<DatabaseSession, Failure> {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.connect().await
    }

    /// Whether a connection is not from before the last [`Database::connect_anew`].
    pub(super) fn is_current(&self, session: &DatabaseSession) -> bool {
        session.generation == self.generation.load(Ordering::Acquire)
    }

    /// Connects for a lane, which prepares the statements that it sends often.
    pub(super) async fn connect_lane(&self) -> Result<DatabaseSession, Failure> {
        let mut session = self.connect().await?;
        session.prepared = self.prepares().then(PreparedStatements::new).transpose()?;
        Ok(session)
    }

    /// Whether lanes prepare statements.
    pub(super) fn prepares(&self) -> bool {
        !self.loses_prepared.load(Ordering::Relaxed)
    }

    /// Has no more statements prepared on connections of lanes that are made from now on.
    pub(super) fn prepare_no_more(&self) {
        if !self.loses_prepared.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "the database keeps no prepared statements, as behind some poolers; it plans each one anew"
            );
        }
    }

    /// Connects to the first host that takes writes, beginning with the one of the last time.
    pub(crate) async fn connect(&self) -> Result<DatabaseSession, Failure> {
        let (count, generation) = (self.hosts.len(), self.generation.load(Ordering::Acquire));
        let mut reasons = Vec::new();
        for at in (0..count).map(|step| (self.last.load(Ordering::Relaxed) + step) % count) {
            let Some((host, config)) = self.hosts.get(at) else { continue };
            let tls = self.tls.as_ref().filter(|_| self.uses_tls.get(at) == Some(&true));
            let deadline = Instant::now() + CONNECT_PATIENCE;
            let addresses = match addresses(host, deadline).await {
                Ok(addresses) => addresses,
                Err(reason) => {
                    reasons.push(format!("{}:{}: {reason}", host.name, host.port));
                    continue;
                }
            };
            match open_any(config, &addresses, tls, deadline).await {
                Ok(mut session) => {
                    self.last.store(at, Ordering::Relaxed);
                    session.generation = generation;
                    return Ok(session);
                }
                Err(failed) => {
                    reasons.extend(
                        failed.into_iter().map(|reason| format!("{}:{}{reason}", host.name, host.port)),
                    );
                }
            }
        }
        Err(Failure::Unreachable(reasons.join("; ")))
    }
}

/// The addresses of a host, each once. `None` stands for the path of a socket on this machine.
async fn addresses(host: &DatabaseHost, deadline: Instant) -> Result<Vec<Option<IpAddr>>, String> {
    if host.is_socket() {
        return Ok(vec![None]);
    }
    if let Some(address) = host.loopback() {
        return Ok(vec![Some(address)]);
    }
    let looked_up = tokio::net::lookup_host((host.name.as_str(), host.port));
    let found = match timeout(deadline.saturating_duration_since(Instant::now()), looked_up).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(format!("its address was not found: {error}")),
        Err(_) => return Err(format!("its address was not found within {CONNECT_PATIENCE:?}")),
    };
    let mut addresses = Vec::new();
    for address in found.map(|address| Some(address.ip())) {
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("its name has no address".to_owned()) } else { Ok(addresses) }
}

/// Connects to the first of these addresses of one host that takes writes. Each has an equal part of the
/// time that is left when it is tried, so that one that is silent leaves time for the others. The other
/// result is why each of them was passed over.
pub(super) async fn open_any(
    config: &Config,
    addresses: &[Option<IpAddr>],
    tls: Option<&MakeRustlsConnect>,
    deadline: Instant,
) -> Result<DatabaseSession, Vec<String>> {
    let mut reasons = Vec::new();
    for (left, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
        let part = deadline.saturating_duration_since(Instant::now()) / left;
        let mut config = config.clone();
        // Its name, which is set too, is what certificates are verified for.
        if let Some(address) = address {
            config.hostaddr(*address);
        }
        let reason = match timeout(part, open(&config, tls)).await {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(Failure::Refused { code, message })) => format!("{message} ({})", code.code()),
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => format!("no answer within {part:.1?}"),
        };
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        reasons.push(format!("{address}: {reason}"));
    }
    Err(reasons)
}

pub(super) fn config(url: &DatabaseUrl, host: &DatabaseHost) -> Config {
    let mut config = Config::new();
    config.host(&host.name).port(host.port).user(&url.user).dbname(&url.database);
    if let Some(password) = &url.password {
        config.password(password.expose());
    }
    let mode = if host.uses_tls(url.tls) { SslMode::Require } else { SslMode::Disable };
    config.ssl_mode(mode);
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.application_name("cofferdam");
    config.connect_timeout(CONNECT_PATIENCE);
    config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    config.keepalives_idle(KEEPALIVE_IDLE);
    config
}

/// TLS settings that verify the server's certificate and name.
fn tls(roots: &[Vec<u8>]) -> Result<MakeRustlsConnect, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut extra = Vec::new();
    for (number, pem) in (1..).zip(roots) {
        let before = extra.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            extra.push(certificate.map_err(|_| TlsError::Root(number))?);
        }
        if extra.len() == before {
            return Err(TlsError::Root(number));
        }
    }
    let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider));
    let verifier = verifier.map_err(|_| TlsError::NoRoots)?;
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| TlsError::Settings)?;
    // "Dangerous" is every verifier that is not the library's own. This one verifies all it is asked.
    let settings = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(MakeRustlsConnect::new(settings.with_no_client_auth()))
}

async fn open(config: &Config, tls: Option<&MakeRustlsConnect>) -> Result<DatabaseSession, Failure> {
    match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls.clone()).await?;
            Ok(DatabaseSession::start(client, connection))
        }
        None => {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
            Ok(DatabaseSession::start(client, connection))
        }
    }
}

/// One connection. Dropping it closes it, and whatever is still running on it.
pub(crate) struct DatabaseSession {
    pub(super) client: Client,
    /// What the server has prepared, on connections of lanes.
    pub(super) prepared: Option<PreparedStatements>,
    /// The server sent a warning.
    warned: Arc<AtomicBool>,
    /// The server sent a notification of what this connection listens to.
    notified: Arc<Notify>,
    /// See [`Database::is_current`].
    generation: u64,
    driver: JoinHandle<()>,
}

impl DatabaseSession {
    fn start<S, T>(client: Client, connection: Connection<S, T>) -> DatabaseSession
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let warned = Arc::new(AtomicBool::new(false));
        let notified = Arc::new(Notify::new());
        let driver = tokio::spawn(drive(connection, Arc::clone(&warned), Arc::clone(&notified)));
        DatabaseSession { client, prepared: None, warned, notified, generation: 0, driver }
    }

    /// Waits for a notification since the last call.
    pub(super) async fn until_notified(&self) {
        self.notified.notified().await;
    }

    /// Whether the server sent a warning since the last call. It warns, among others, where it
    /// acknowledges a commit that was not replicated.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::Relaxed)
    }

    /// Runs a text of several statements and returns the columns of their rows as text.
    pub(super) async fn script(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        const UNEXPECTED: Failure = Failure::Unexpected("a question whose answer is text");
        let answers = self.client.simple_query(sql).await?;
        let rows = answers.into_iter().filter_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let columns = |row: tokio_postgres::SimpleQueryRow| {
            let column = |at| Ok(row.try_get(at).map_err(|_| UNEXPECTED)?.map(str::to_owned));
            (0..row.len()).map(column).collect()
        };
        rows.map(columns).collect()
    }
}

impl Drop for DatabaseSession {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Moves the bytes of a connection until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, warned: Arc<AtomicBool>, notified: Arc<Notify>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                let is_harmless = matches!(
                    notice.parsed_severity(),
                    Some(Severity::Notice | Severity::Info | Severity::Debug | Severity::Log)
                );
                if !is_harmless {
                    warned.store(true, Ordering::Relaxed);
                    log_warning(&notice);
                }
            }
            Ok(AsyncMessage::Notification(_)) => notified.notify_one(),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to the database ended");
                return;
            }
        }
    }
}

fn log_warning(warning: &DbError) {
    let code = warning.code();
    // A rollback where the server has rolled back already.
    if *code == SqlState::NO_ACTIVE_SQL_TRANSACTION {
        tracing::debug!(code = code.code(), "the database warns: {}", warning.message());
    } else {
        tracing::warn!(code = code.code(), "the database warns: {}", warning.message());
    }
}
