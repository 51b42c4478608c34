//! The store: whether it takes changes, which keys end soon, and whether the clock of the machine
//! can be right.

use cofferdam_store::{OpenError, OwnedKey, Page, Store};

use super::{CheckFinding, Installation};
use crate::command::older_schema;
use crate::failure::Failure;
use crate::timestamp::timestamp;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// A key that ends within this time is a warning.
const EXPIRY_MS: u64 = 7 * DAY_MS;
/// How far the clock may be behind the store: clocks are corrected by small steps.
const CLOCK_SLACK_MS: u64 = 60_000;
/// Keys that are named one by one.
const KEYS_NAMED_MAX: usize = 20;

pub(super) async fn check(store: &Store, installation: &Installation<'_>) -> Vec<CheckFinding> {
    let mut findings = vec![state(store)];
    findings.extend(schema(store).await);
    findings.push(recovery_key(store));
    findings.push(clock(store, installation.now_ms).await);
    findings.extend(keys(store, installation.now_ms).await);
    findings
}

/// A store that does not open.
pub(super) fn refused(failure: &Failure) -> CheckFinding {
    let remedy = match failure {
        Failure::Open(OpenError::NoStore) => "cofferdam store create",
        _ => "see \"When something refuses to start\" in docs/operate.md",
    };
    CheckFinding::bad("store", "store", format!("it does not open: {failure}"), remedy)
}

fn state(store: &Store) -> CheckFinding {
    const ID: &str = "store";
    let status = store.status();
    if !status.writable || status.stalled_for_ms.is_some() {
        return CheckFinding::bad(
            ID,
            "store",
            "it takes no changes",
            "look at the log and the disk, then start the host again",
        );
    }
    if !status.has_contact {
        return CheckFinding::bad(
            ID,
            "store",
            "it has no contact with its database, so it takes no changes",
            "see \"What happens when the database is away\" in docs/several-hosts.md",
        );
    }
    if status.damaged_rows_met > 0 {
        let found = format!("{} damaged rows were read", status.damaged_rows_met);
        return CheckFinding::bad(ID, "store", found, "cofferdam vault verify; then restore a backup");
    }
    if status.next_root_key_id.is_some() {
        return CheckFinding::warn(
            ID,
            "store",
            "a change of the root key is not over",
            "run `vault rotate-root` again",
        );
    }
    if status.key_rotation_unfinished {
        return CheckFinding::warn(
            ID,
            "store",
            "a change of the vault keys is not over",
            "run `vault rotate-keys` again",
        );
    }
    let place = match store.database_hosts() {
        Some(hosts) => format!("in the database at {}", hosts.join(", ")),
        None => format!("commit {}", status.seq),
    };
    CheckFinding::ok(ID, "store", format!("{} is open, {place}", status.store_id))
}

/// A schema that is older than this program. One that cannot be read is a finding of other checks.
async fn schema(store: &Store) -> Option<CheckFinding> {
    let older = store.schema().await.ok().flatten().and_then(older_schema)?;
    Some(CheckFinding::warn("schema", "schema", older, "cofferdam store upgrade"))
}

fn recovery_key(store: &Store) -> CheckFinding {
    const ID: &str = "recovery-key";
    let status = store.status();
    if status.opened_with_recovery_key {
        let found = "it opened the store, which has no root key";
        return CheckFinding::warn(
            ID,
            "recovery key",
            found,
            "give the store a root key with `vault rotate-root`",
        );
    }
    if status.has_recovery_key {
        return CheckFinding::ok(ID, "recovery key", "the store has one");
    }
    let found = "the store has none: with a lost root key all secrets are lost";
    CheckFinding::warn(
        ID,
        "recovery key",
        found,
        "cofferdam vault recovery new; keep it away from this machine",
    )
}

/// The newest commit of the store must not be later than now.
async fn clock(store: &Store, now_ms: u64) -> CheckFinding {
    const ID: &str = "clock";
    if store.database_hosts().is_some() {
        return CheckFinding::ok(ID, "clock", format!("it is {}", timestamp(now_ms)));
    }
    let last = store.audit_records(store.status().seq.saturating_sub(1), 1).await;
    let newest = match last.as_ref().map(|records| records.last()) {
        Ok(Some(record)) => record.at_ms,
        Ok(None) => return CheckFinding::ok(ID, "clock", format!("it is {}", timestamp(now_ms))),
        Err(error) => {
            return CheckFinding::bad(
                "store",
                "store",
                format!("the audit log: {error}"),
                "cofferdam vault verify",
            );
        }
    };
    if newest > now_ms.saturating_add(CLOCK_SLACK_MS) {
        let found =
            format!("it says {}, and the store has a change of {}", timestamp(now_ms), timestamp(newest));
        let remedy =
            "set the clock of this machine (`timedatectl set-ntp true`): keys end and limits begin by it";
        return CheckFinding::bad(ID, "clock", found, remedy);
    }
    CheckFinding::ok(
        ID,
        "clock",
        format!("it says {}, later than the newest change of the store", timestamp(now_ms)),
    )
}

/// Keys that work now and end soon.
async fn keys(store: &Store, now_ms: u64) -> Vec<CheckFinding> {
    const ID: &str = "key-expiry";
    let mut ending: Vec<(u64, OwnedKey)> = Vec::new();
    let mut last: Option<OwnedKey> = None;
    loop {
        let Page { entries, has_more } = match store.keys(None, last.as_ref()).await {
            Ok(page) => page,
            Err(error) => {
                let found = format!("the keys cannot be listed: {error}");
                return vec![CheckFinding::bad("store", "store", found, "cofferdam vault verify")];
            }
        };
        last = entries.last().cloned();
        ending.extend(entries.into_iter().filter_map(|owned| Some((ends_soon(&owned, now_ms)?, owned))));
        if !has_more {
            break;
        }
    }
    ending.sort_by_key(|(at_ms, _)| *at_ms);
    if ending.is_empty() {
        return vec![CheckFinding::ok(ID, "keys", "none ends within 7 days")];
    }
    let more = ending.len().saturating_sub(KEYS_NAMED_MAX);
    let remedy = "make its successor with `cofferdam key create`, and give it to the client in time";
    let finding = |(at_ms, owned): &(u64, OwnedKey)| {
        let key = owned.key();
        let name = key.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        CheckFinding::warn(
            ID,
            format!("key {}{name}", key.id),
            format!("it ends at {}", timestamp(*at_ms)),
            remedy,
        )
    };
    let mut findings: Vec<CheckFinding> = ending.iter().take(KEYS_NAMED_MAX).map(finding).collect();
    if more > 0 {
        findings.push(CheckFinding::warn(
            ID,
            "keys",
            format!("{more} more end within 7 days"),
            "cofferdam key list",
        ));
    }
    findings
}

/// When the key ends, if it works now and ends soon.
fn ends_soon(owned: &OwnedKey, now_ms: u64) -> Option<u64> {
    let key = owned.key();
    let at_ms = key.expires_at_ms?;
    let works = key.revoked_at_ms.is_none() && !key.disabled && at_ms > now_ms;
    (works && at_ms - now_ms < EXPIRY_MS).then_some(at_ms)
}
