//! Listings of one vault, or of an intern's vault together with its workspace's.
//!
//! A damaged row makes the listing fail only for the page that contains it.

use std::cmp::Ordering;
use std::iter::{Peekable, from_fn};

use super::{EffectiveScope, EffectiveSecret, access::VaultSnapshot};
use crate::error::Error;
use crate::ids::{InternId, VaultId};
use crate::page::Page;
use crate::secret::{SecretMetadata, SecretName};
use crate::state::{Gap, RowBytes};

/// Lists secrets of a vault by name. A vault whose intern does not exist is an error, not an empty
/// list.
pub(crate) fn secrets(
    view: &VaultSnapshot,
    vault: VaultId,
    offset: usize,
    limit: usize,
) -> Result<Page<SecretMetadata>, Gap> {
    if let VaultId::Intern(intern) = vault {
        view.intern(intern)?;
    }
    let rows = view.rows(vault, reach(offset, limit))?;
    Page::try_of(rows.skip(offset), limit, |row| {
        let (name, row) = view.split(vault, row?)?;
        Ok(view.decode(vault, name, &row)?.metadata)
    })
}

/// Lists the secrets an intern can use: its own, and those of its workspace that have none of these
/// names.
pub(crate) fn effective(
    view: &VaultSnapshot,
    intern: InternId,
    offset: usize,
    limit: usize,
) -> Result<Page<EffectiveSecret>, Gap> {
    let (own, workspace) = (VaultId::Intern(intern), VaultId::Workspace(view.intern(intern)?.workspace));
    // No entry of the page takes more than one row of each vault.
    let rows = reach(offset, limit);
    let mut of_intern = named(view, own, rows)?.peekable();
    let mut of_workspace = named(view, workspace, rows)?.peekable();
    let winners = from_fn(|| next_winner(&mut of_intern, &mut of_workspace)).skip(offset);
    Page::try_of(winners, limit, |(scope, row)| {
        let (name, row) = row?;
        let vault = if scope == EffectiveScope::Intern { own } else { workspace };
        Ok(EffectiveSecret { scope, metadata: view.decode(vault, name, &row)?.metadata })
    })
}

/// Number of rows that a page and the question whether more follow can need.
fn reach(offset: usize, limit: usize) -> usize {
    offset.saturating_add(limit).saturating_add(1)
}

type NamedRow = Result<(SecretName, RowBytes), Error>;

fn named(view: &VaultSnapshot, vault: VaultId, limit: usize) -> Result<impl Iterator<Item = NamedRow>, Gap> {
    Ok(view.rows(vault, limit)?.map(move |row| view.split(vault, row?)))
}

/// The lesser of the two next names. If they are equal, the intern's secret is returned and the
/// workspace's is skipped.
fn next_winner(
    of_intern: &mut Peekable<impl Iterator<Item = NamedRow>>,
    of_workspace: &mut Peekable<impl Iterator<Item = NamedRow>>,
) -> Option<(EffectiveScope, NamedRow)> {
    let order = match (of_intern.peek(), of_workspace.peek()) {
        (None, None) => return None,
        (Some(Ok((own, _))), Some(Ok((other, _)))) => own.cmp(other),
        (None, Some(_)) | (Some(_), Some(Err(_))) => Ordering::Greater,
        (Some(_), _) => Ordering::Less,
    };
    if order == Ordering::Greater {
        return of_workspace.next().map(|row| (EffectiveScope::Workspace, row));
    }
    if order == Ordering::Equal {
        of_workspace.next();
    }
    of_intern.next().map(|row| (EffectiveScope::Intern, row))
}
