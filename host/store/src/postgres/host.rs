//! This host in the table of hosts.
//!
//! A row stands for one life of a process: it is written before the directory is read, so that from then
//! on others wait for this host, and deleted in the transaction that seals the chains of the host.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio_postgres::types::Type;

use super::connect::Session;
use super::failure::Failure;
use super::statement::Statement;
use super::transaction::{BEGIN, bounded};

/// One life of a process.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct HostId(pub(crate) [u8; 16]);

impl HostId {
    fn random() -> Result<HostId, Failure> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(HostId(id))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::encode(&self.0))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The id under which this process is a host now. It gets another one when other hosts have taken it for
/// dead.
#[derive(Debug)]
pub(crate) struct ThisHost(Mutex<HostId>);

impl ThisHost {
    pub(super) fn new(id: HostId) -> ThisHost {
        ThisHost(Mutex::new(id))
    }

    pub(crate) fn id(&self) -> HostId {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes this process a host: gives it an id and a row.
pub(super) async fn enter(session: &Session) -> Result<HostId, Failure> {
    let id = HostId::random()?;
    let row = Statement::new("INSERT INTO host (id, beat, seen, about) VALUES ($1, 1, '', $2)")
        .with(id.0.to_vec(), Type::BYTEA)
        .with(about(), Type::TEXT);
    bounded(row.execute(&session.client)).await?;
    Ok(id)
}

/// What people read of a host: its version, machine and process.
fn about() -> String {
    let machine = rustix::system::uname();
    let about = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine.nodename().to_string_lossy(),
        "process": std::process::id(),
    });
    about.to_string()
}

/// Seals the chains of a host and deletes its row, unless it has none any more. Nothing can be added to
/// its chains after that.
pub(super) async fn leave(session: &Session, id: HostId) -> Result<(), Failure> {
    let row = crate::hex::encode(&id.0);
    let script = format!(
        "{BEGIN}; DELETE FROM host WHERE id = '\\x{row}'; \
         UPDATE chain SET sealed_ms = (extract(epoch FROM now()) * 1000)::bigint \
         WHERE host = '{id}' AND sealed_ms IS NULL; COMMIT"
    );
    bounded(session.script(&script)).await.map(drop)
}
