//! Statements that the server keeps prepared for a lane.
//!
//! The server parses and plans an unnamed statement each time, which takes longer than to run it. A lane
//! therefore has those prepared that it sends often. The client library names them, by numbers that begin
//! anew in each process. A pooler can give a transaction to a session of the server that has none of these
//! names, or has given them to statements of others. So a lane marks the session of the server in which it
//! prepares, and each of its transactions reads the mark. In another session nothing is committed, and the
//! host sends unnamed statements from then on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;

/// How often a statement is sent before it is prepared.
const OFTEN: u8 = 3;
/// Most different statements that a connection remembers. Further ones stay unnamed.
const STATEMENTS_MAX: usize = 128;
/// The longest text that is prepared, in bytes. A longer one asks for many ranges, and seldom comes again.
const TEXT_MAX: usize = 8 * 1024;

/// Reads the mark of the session of the server.
pub(super) const READ_MARK: &str = "SELECT current_setting('cofferdam.lane', true)";

/// What a transaction that uses prepared statements sets. A plan for any parameters has to do for tables that
/// grow after it was made: it reads indexes even where the table is still small. And no plan is worth compiling.
pub(super) const SETTINGS: &str =
    "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// The statements of one connection.
pub(super) struct PreparedStatements {
    mark: String,
    by_text: Mutex<HashMap<String, Use>>,
}

enum Use {
    /// So many times, with these types of parameters.
    Sent(u8, Vec<Type>),
    Prepared(tokio_postgres::Statement),
}

impl PreparedStatements {
    /// No statements yet, and a mark that no other connection has.
    pub(super) fn new() -> Result<PreparedStatements, getrandom::Error> {
        let mut mark = [0; 16];
        getrandom::fill(&mut mark)?;
        Ok(PreparedStatements { mark: crate::hex::encode(&mark), by_text: Mutex::default() })
    }

    /// The prepared statement for a text, if there is one. Counts the use otherwise.
    pub(super) fn find(
        &self,
        sql: &str,
        types: impl ExactSizeIterator<Item = Type>,
    ) -> Option<tokio_postgres::Statement> {
        let mut by_text = self.lock();
        match by_text.get_mut(sql) {
            Some(Use::Prepared(statement)) => {
                return Some(statement.clone())
                    .filter(|statement| types.eq(statement.params().iter().cloned()));
            }
            Some(Use::Sent(times, _)) => {
                *times = times.saturating_add(1);
                return None;
            }
            None => {}
        }
        if by_text.len() >= STATEMENTS_MAX {
            // Texts that came only a few times make room.
            by_text.retain(|_, of| matches!(of, Use::Prepared(_)));
        }
        if sql.len() <= TEXT_MAX && by_text.len() < STATEMENTS_MAX {
            by_text.insert(sql.to_owned(), Use::Sent(1, types.collect()));
        }
        None
    }

    /// The mark of the session that has the statements.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Sets the mark, outside of a transaction.
    pub(super) fn set_mark(&self) -> String {
        format!("SELECT set_config('cofferdam.lane', '{}', false)", self.mark)
    }

    /// Whether any statement is prepared.
    pub(super) fn has_any(&self) -> bool {
        self.lock().values().any(|of| matches!(of, Use::Prepared(_)))
    }

    /// The statements that are worth preparing.
    pub(super) fn often_sent(&self) -> Vec<(String, Vec<Type>)> {
        let by_text = self.lock();
        let often = by_text.iter().filter_map(|(sql, of)| match of {
            Use::Sent(times, types) if *times >= OFTEN => Some((sql.clone(), types.clone())),
            Use::Sent(..) | Use::Prepared(_) => None,
        });
        often.collect()
    }

    /// Notes what is prepared.
    pub(super) fn add(&self, prepared: impl IntoIterator<Item = (String, tokio_postgres::Statement)>) {
        let prepared = prepared.into_iter().map(|(sql, statement)| (sql, Use::Prepared(statement)));
        self.lock().extend(prepared);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Use>> {
        // The statements are usable even if another thread panicked while it held the lock.
        self.by_text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_seldom_come_make_room_and_long_ones_are_not_counted() {
        let statements = PreparedStatements::new().unwrap();
        let send = |sql: &str| assert!(statements.find(sql, std::iter::empty()).is_none());
        (0..1000).for_each(|at| send(&format!("SELECT {at}")));
        let long = "x".repeat(TEXT_MAX + 1);
        for _ in 0..OFTEN {
            send("SELECT often");
            send(&long);
        }
        let often: Vec<String> = statements.often_sent().into_iter().map(|(sql, _)| sql).collect();
        assert_eq!(often, ["SELECT often"]);
        assert!(statements.lock().len() <= STATEMENTS_MAX);
    }
}
