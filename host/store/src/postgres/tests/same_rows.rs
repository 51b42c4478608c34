//! Both engines keep the same bytes for the same commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::place::{ChainEnd, ChainId};
use super::super::transaction::{Begun, Committed, begin, commit, make_chain};
use super::super::write::statements;
use super::{OPERATOR, World};
use crate::audit::AuditAction;
use crate::changes::{
    Intent, KeyOwner, NewIntern, NewKey, NewWorkspace, RowIntent, SettledUsage, WriteBatch,
};
use crate::commit::{Commit, CommitHead, VaultRows};
use crate::digest::Digest;
use crate::directory::Directory;
use crate::fjall::Database;
use crate::ids::{VaultId, WorkspaceId};
use crate::log;
use crate::rows::{self, Keyspace, SetHash};
use crate::scratch::{name, new_secret};
use crate::spend::SpendLimits;
use crate::state::{Gap, KeyedRow, RowRange};
use crate::token::{KeyId, Token};
use crate::usage::{UsageKind, UsageRow};
use crate::vault::VaultReader;

/// The same commits in both engines.
struct Both<'w> {
    world: &'w World,
    embedded: Database,
    directory: Directory,
    last_commit: CommitHead,
    chain: ChainId,
    end: ChainEnd,
}

impl Both<'_> {
    /// Makes a commit on the rows of the embedded engine and writes it to both.
    fn commit<T>(&mut self, change: impl Fn(&mut WriteBatch) -> Result<T, Gap>) -> T {
        let Both { world, embedded, directory, last_commit, chain, end } = self;
        let access = VaultReader::new(Arc::clone(&world.keys));
        let state = embedded.state(Arc::new(directory.clone()));
        let mut batch = WriteBatch::new(access.view(state), 1_700_000_000_000 + last_commit.seq);
        let done = change(&mut batch).unwrap();
        let (commit_of, effects) = batch.finish();
        directory.change(effects.publish(&access));
        let copy = copy(&commit_of);
        *last_commit = embedded.apply(&world.keys, last_commit, last_commit.seq + 1, commit_of).unwrap();
        let nothing = BTreeSet::new();
        let session = &world.session;
        world.runtime.block_on(async {
            let Begun { end: before, .. } =
                begin(session, &world.keys, *chain, *end, &BTreeSet::new(), &nothing).await.unwrap();
            let written = statements(&world.keys, *chain, before, copy, Vec::new()).unwrap();
            assert!(matches!(commit(session, *chain, before, &written).await, Committed::Yes { .. }));
            *end = written.end;
        });
        assert_eq!((end.seq, end.head), (last_commit.seq, last_commit.head));
        done
    }

    fn compare(&self) {
        let state = self.embedded.state(Arc::default());
        for keyspace in [Keyspace::Keys, Keyspace::Meta, Keyspace::Values] {
            let embedded = state.range(&RowRange::all(keyspace)).unwrap().map(Result::unwrap);
            let embedded: Vec<KeyedRow> = embedded.filter(|(key, _)| **key != *rows::MARKER).collect();
            assert_eq!(self.world.rows(keyspace), embedded, "{keyspace:?}");
        }
        let chain = format!("chain = {}", self.chain.literal());
        let sql = format!(
            "SELECT seq, 0 AS part, encode(body, 'hex') FROM audit WHERE {chain} UNION ALL \
             SELECT seq, part + 1, encode(body, 'hex') FROM usage WHERE {chain}"
        );
        let row = |row: Vec<Option<String>>| {
            let number = |at: usize| row[at].as_deref().unwrap().parse::<u64>().unwrap();
            let key = log::key(number(0), number(1) as u32);
            (key, crate::hex::decode(row[2].as_deref().unwrap()).unwrap())
        };
        let here: BTreeMap<Vec<u8>, Vec<u8>> = self.world.sql(&sql).into_iter().map(row).collect();
        let embedded = state.range(&RowRange::all(Keyspace::Log)).unwrap().map(Result::unwrap);
        let embedded = embedded.filter(|(key, _)| **key != *rows::MARKER);
        let embedded: BTreeMap<_, _> = embedded.map(|(key, row)| (key.to_vec(), row.to_vec())).collect();
        assert_eq!(here, embedded);
    }
}

fn copy(commit: &Commit) -> Commit {
    let Commit { at_ms, rows, vaults: VaultRows { meta, heads, values }, entries, usage } = commit;
    let vaults = VaultRows { meta: meta.clone(), heads: heads.clone(), values: values.clone() };
    Commit { at_ms: *at_ms, rows: rows.clone(), vaults, entries: entries.clone(), usage: usage.clone() }
}

fn usage(workspace: WorkspaceId, key: KeyId, request: usize) -> UsageRow {
    UsageRow {
        cost_pico: request as u64,
        model: "m".to_owned(),
        ..UsageRow::begun(format!("r{request}"), workspace, key, UsageKind::Responses, false)
    }
}

#[test]
fn the_same_commits_leave_the_same_rows_in_both_engines() {
    let Some(world) = World::new("same_rows") else { return };
    let (_folder, embedded) = world.embedded();
    let nothing: Digest = [0; 32];
    let last_commit =
        CommitHead { seq: 0, head: nothing, set: SetHash::default(), heads: SetHash::default() };
    let host = world.host();
    let chain = ChainId::random().unwrap();
    world.runtime.block_on(make_chain(&world.session, chain, host.engine.host_id())).unwrap();
    let directory = Directory::default();
    let mut both = Both { world: &world, embedded, directory, last_commit, chain, end: ChainEnd::FIRST };

    let new = |text: &str| NewWorkspace { name: name(text), programme: true, vault_writes: true };
    let workspace = both.commit(|batch| batch.create_workspace(OPERATOR, &new("one"))).id;
    let other = both.commit(|batch| batch.create_workspace(OPERATOR, &new("two"))).id;
    let intern = NewIntern { workspace, name: name("bot"), created_by: None };
    let intern = both.commit(|batch| batch.create_intern(OPERATOR, &intern)).id;
    let owner = KeyOwner::Intern { workspace, intern };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
    let token = Token::random().unwrap();
    let key = both.commit(|batch| batch.issue_key(OPERATOR, &new, &token)).0.id;
    let vaults = [
        VaultId::Operator,
        VaultId::Workspace(workspace),
        VaultId::Intern(intern),
        VaultId::Workspace(other),
    ];
    for vault in vaults {
        for text in ["a", "b", "c"] {
            both.commit(|batch| batch.put_secret(OPERATOR, &new_secret(vault, text, "value")).map(drop));
        }
    }
    both.commit(|batch| batch.delete_secret(OPERATOR, vaults[1], &"b".parse().unwrap()));
    both.commit(|batch| batch.put_secret(OPERATOR, &new_secret(vaults[2], "a", "another")).map(drop));
    let names = ["a", "c"].map(|name| name.parse().unwrap());
    both.commit(|batch| batch.copy_secrets(OPERATOR, workspace, intern, &names).map(drop));
    both.commit(|batch| {
        let intent = Intent::of(&usage(workspace, key, 0), 7);
        batch.put_intent(&intent)
    });
    both.compare();
    both.commit(|batch| {
        // Three blocks of rows, the intent of one of them, and sums of all.
        let intent = |at| if at == 0 { RowIntent::Possible } else { RowIntent::None };
        let rows = (0..300).map(|at| SettledUsage { row: usage(workspace, key, at), intent: intent(at) });
        batch.add_usage(rows)
    });
    both.commit(|batch| batch.add_credit(OPERATOR, workspace, 5).map(drop));
    both.commit(|batch| batch.drop_totals_before(1));
    both.commit(|batch| batch.delete_intern(OPERATOR, intern).map(drop));
    both.commit(|batch| batch.delete_workspace(OPERATOR, other).map(drop));
    both.commit(|batch| {
        batch.audit(OPERATOR, AuditAction::KeyRotationBegun);
        Ok(())
    });
    both.compare();
    assert_eq!(world.audit().len() as u64, both.last_commit.seq + 1, "with the record of the first rows");
}
