//! What became of the commit of a whole store, which COMMIT itself does not tell: its answer may be lost, and
//! COMMIT of a failed transaction is answered like one that succeeded.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connect::Database;
use super::failure::Failure;
use super::transaction::bounded;

/// For how long the database is asked, and the pause between two questions.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);

/// Looks whether the store has this header now and the condition of SQL holds, as durable as a commit is.
/// The transaction in question must hold a lock of this table, for which the question waits, and then writes.
///
/// # Errors
/// [`Failure::NotCommitted`] if it is not so, [`Failure::CopyInDoubt`] if the database does not tell.
pub(super) async fn conclude(
    database: &Database,
    table: &str,
    header: &[u8],
    condition: &str,
) -> Result<(), Failure> {
    let header = crate::hex::encode(header);
    let script = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 5000; SET LOCAL statement_timeout = 8000; \
         SET LOCAL synchronous_commit = on; LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE; \
         UPDATE store SET body = body WHERE k = 'header'::bytea AND body = decode('{header}', 'hex') \
         AND {condition} RETURNING 1; COMMIT"
    );
    let end = Instant::now() + PATIENCE;
    loop {
        match is_so(database, &script).await {
            Ok(true) => return Ok(()),
            Ok(false) => return Err(Failure::NotCommitted),
            Err(failure) if Instant::now() < end => {
                tracing::warn!(%failure, "whether the store was committed is not known yet");
                sleep(PAUSE).await;
            }
            Err(_) => return Err(Failure::CopyInDoubt),
        }
    }
}

async fn is_so(database: &Database, script: &str) -> Result<bool, Failure> {
    let session = database.connect().await?;
    let rows = bounded(session.script(script)).await?;
    if session.take_warning() {
        return Err(Failure::Unexpected("the question for a commit"));
    }
    Ok(!rows.is_empty())
}
