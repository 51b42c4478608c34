//! The rule that decides whether a store may be served, as a pure function of the evidence.

use super::AnchorContent;
use crate::audit::AuditRecord;
use crate::commit::CommitHead;
use crate::rows::{KEYSPACES, SetHash};
use crate::seal::StoreKeys;

/// Everything the rule looks at.
#[derive(Clone)]
pub(crate) struct Evidence {
    pub(crate) anchor: AnchorContent,
    pub(crate) markers: [Option<u64>; 4],
    /// The newest audit record and its stored bytes.
    pub(crate) record: Option<(AuditRecord, Vec<u8>)>,
    pub(crate) set: SetHash,
    pub(crate) heads: SetHash,
    /// Whether every row of `keys` has a valid MAC and the rows are the set in its marker.
    pub(crate) rows_hold: bool,
    /// Like `rows_hold`, but for the vaults' heads and the marker of `meta`.
    pub(crate) heads_hold: bool,
}

impl Evidence {
    pub(crate) fn anchor_seq(&self) -> Option<u64> {
        match self.anchor {
            AnchorContent::Slot(slot) => Some(slot.seq),
            AnchorContent::OtherStore | AnchorContent::Nothing => None,
        }
    }

    pub(crate) fn named_markers(&self) -> [(&'static str, Option<u64>); 4] {
        let [keys, meta, values, log] = KEYSPACES;
        let [m0, m1, m2, m3] = self.markers;
        [(keys, m0), (meta, m1), (values, m2), (log, m3)]
    }
}

pub(crate) const NO_ANCHOR: &str = "there is no valid anchor";

#[derive(Debug, Eq, PartialEq)]
pub(crate) struct OpenRule {
    pub(crate) last_commit: CommitHead,
    pub(crate) anchor_is_behind: bool,
}

/// A store may be served if all keyspaces are at the anchored commit, or exactly one commit further
/// and the record of that commit follows the anchored one. The second state is what a power failure
/// between batch and anchor leaves.
pub(crate) fn judge(keys: &StoreKeys, evidence: &Evidence) -> Result<OpenRule, &'static str> {
    let slot = match evidence.anchor {
        AnchorContent::Slot(slot) => slot,
        AnchorContent::OtherStore => return Err("the anchor belongs to another store"),
        AnchorContent::Nothing => return Err(NO_ANCHOR),
    };
    let [Some(seq), Some(meta), Some(values), Some(log)] = evidence.markers else {
        return Err("a keyspace has no valid marker");
    };
    if [meta, values, log] != [seq; 3] {
        return Err("the keyspaces are not in step");
    }
    if seq < slot.seq {
        return Err("the store is older than its anchor");
    }
    if seq > slot.seq.saturating_add(1) {
        return Err("the store is newer than its anchor");
    }
    let Some((record, bytes)) = evidence.record.as_ref().filter(|(record, _)| record.seq == seq) else {
        return Err("the last audit record is missing");
    };
    let head = keys.audit_head(&record.previous, bytes);
    let anchor_is_behind = seq != slot.seq;
    if anchor_is_behind && record.previous != slot.head {
        return Err("the last audit record does not follow the anchored one");
    }
    if !anchor_is_behind && head != slot.head {
        return Err("the last audit record is not the anchored one");
    }
    if !evidence.rows_hold {
        return Err("rows of the keyspace `keys` were changed from outside");
    }
    if !evidence.heads_hold {
        return Err("heads of vaults were changed from outside");
    }
    Ok(OpenRule {
        last_commit: CommitHead { seq, head, set: evidence.set, heads: evidence.heads },
        anchor_is_behind,
    })
}
