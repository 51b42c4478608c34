//! A standby that backups are read from.
//!
//! It may lag. Chains are serial, so it has a commit if the chain of that commit has at least its number there.
//! A backup begins only when the standby has all commits that the primary showed before, and those that this host
//! knows to be durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::begin::wait;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::place::ChainId;
use super::schema;
use super::transaction::bounded;
use super::witness::{ChainNumbers, Witness, compare};
use crate::operation::{Progress, VaultError, tell};

/// How long the standby is waited for.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Waits until the standby has all commits that there are now.
///
/// # Errors
/// [`VaultError::StandbyLags`], [`VaultError::Stopped`], and those of the connections.
pub(super) fn until_current(
    primary: &Database,
    standby: &Arc<Database>,
    witness: &Witness,
    runtime: &Handle,
    progress: &mut Progress<'_>,
) -> Result<(), VaultError> {
    let mut known = wait(runtime, async || numbers(&primary.connect().await?).await)?;
    for (chain, number) in witness.numbers() {
        let there = known.entry(chain).or_default();
        *there = number.max(*there);
    }
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::ZERO;
    loop {
        let (found, behind_s) = wait(runtime, async || {
            sleep(pause).await;
            let session = standby.connect().await?;
            schema::check(&session).await?;
            Ok((numbers(&session).await?, behind_s(&session).await?))
        })?;
        let lacks = compare(&known, &found, true);
        if lacks.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(VaultError::StandbyLags { commits: lacks.commits(), behind_s });
        }
        tell(progress, "commits that the standby lacks", lacks.commits(), 0)?;
        pause = LOOK_EVERY;
    }
}

/// The number of the last commit of each chain.
async fn numbers(session: &DatabaseSession) -> Result<ChainNumbers, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the ends of chains");
    let end = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(chain), Some(seq)] => {
            Some((ChainId(crate::hex::decode(chain)?.try_into().ok()?), seq.parse().ok()?))
        }
        _ => None,
    };
    let rows = bounded(session.script("SELECT encode(id, 'hex'), seq FROM chain WHERE seq > 0")).await?;
    rows.iter().map(|row| end(row).ok_or(UNEXPECTED)).collect()
}

/// How long ago the last transaction was made that this server has applied, in seconds; 0 for a server that is
/// no standby.
async fn behind_s(session: &DatabaseSession) -> Result<u64, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question how far a standby lags");
    let sql = "SELECT greatest(0, \
               coalesce(floor(extract(epoch FROM now() - pg_last_xact_replay_timestamp())), 0))::bigint";
    let rows = bounded(session.script(sql)).await?;
    rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).ok_or(UNEXPECTED)
}
