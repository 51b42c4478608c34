//! Rows that were loaded for a rule.
//!
//! [`Loaded`] knows the rows that were loaded, and which are absent; to everything else it answers
//! that a row is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::directory::{Directory, NameKey, RecordId};
use crate::error::Error;
use crate::lookup::RecordKind;
use crate::rows::Keyspace;
use crate::state::{Gap, KeyedRow, Need, RowBytes, RowRange, Rows, State};

#[cfg(test)]
pub(crate) use trial::{Lack, Trial, read, strictly, taken};

/// The answer to a [`Need`].
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Row(Option<RowBytes>),
    Length(Option<usize>),
    Rows(Vec<KeyedRow>),
    Id(Option<RecordId>),
    Ids(Vec<RecordId>),
    /// The row that has the answer is damaged.
    #[cfg(feature = "postgres")]
    Damaged,
}

/// Rows that were loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded(BTreeMap<Need, Answer>);

impl Loaded {
    /// Keeps the answer to a question. It must be of the question's kind.
    pub(crate) fn put(&mut self, need: Need, answer: Answer) {
        self.0.insert(need, answer);
    }

    /// Bytes of all answers and questions, roughly.
    #[cfg(feature = "postgres")]
    pub(crate) fn bytes(&self) -> usize {
        let of_need = |need: &Need| match need {
            Need::Row(_, key) | Need::Length(_, key) => key.len(),
            Need::Range(_) | Need::Named(_) | Need::Owned(..) => 0,
        };
        let of_answer = |answer: &Answer| match answer {
            Answer::Row(row) => row.as_ref().map_or(0, |row| row.len()),
            Answer::Rows(rows) => rows.iter().map(|(key, row)| key.len() + row.len()).sum(),
            _ => 0,
        };
        let each = size_of::<(Need, Answer)>();
        self.0.iter().map(|(need, answer)| each + of_need(need) + of_answer(answer)).sum()
    }

    fn answer(&self, need: Need) -> Result<&Answer, Gap> {
        self.0.get(&need).ok_or_else(|| Gap::unanswered(need))
    }
}

/// Loaded rows that many batches look at.
impl State for Arc<Loaded> {
    fn row(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<RowBytes>, Gap> {
        match self.answer(Need::Row(keyspace, key.to_vec()))? {
            Answer::Row(row) => Ok(row.clone()),
            _ => Err(Error::Damaged.into()),
        }
    }

    fn length(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<usize>, Gap> {
        match self.answer(Need::Length(keyspace, key.to_vec()))? {
            Answer::Length(length) => Ok(*length),
            _ => Err(Error::Damaged.into()),
        }
    }

    fn range(&self, range: &RowRange) -> Result<Rows, Gap> {
        match self.answer(Need::Range(range.clone()))? {
            Answer::Rows(rows) => Ok(Box::new(rows.clone().into_iter().map(Ok))),
            _ => Err(Error::Damaged.into()),
        }
    }

    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap> {
        match self.answer(Need::Named(name.clone()))? {
            Answer::Id(id) => Ok(*id),
            _ => Err(Error::Damaged.into()),
        }
    }

    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap> {
        match self.answer(Need::Owned(kind, owner))? {
            Answer::Ids(ids) => Ok(ids.clone()),
            _ => Err(Error::Damaged.into()),
        }
    }

    fn has_markers(&self) -> bool {
        false
    }

    fn directory(&self) -> Option<&Directory> {
        None
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trial;
