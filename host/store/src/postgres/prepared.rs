//! Statements that the server keeps prepared for a lane.
//!
//! The server parses and plans an unnamed statement each time, which takes longer than to run it. A lane
//! therefore has those prepared that it sends often. The client library names them, by numbers that begin
//! anew in each process. A pooler can give a transaction to a process of the server that has none of these
//! names, or has given them to statements of others. So each transaction tells which process of the server
//! it runs on. On another one nothing is committed, and the lane sends unnamed statements from then on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_postgres::types::Type;

use super::failure::Failure;

/// How often a statement is sent before it is prepared.
const OFTEN: u8 = 3;
/// Most different statements that a connection remembers. Further ones stay unnamed.
const STATEMENTS_MAX: usize = 128;

/// What a transaction sets when it uses prepared statements. A plan for any parameters has to do for tables
/// that grow after it was made: it reads rows by their keys even where the table is still small. And no plan is
/// worth compiling.
pub(super) const SETTINGS: &str = "SET LOCAL plan_cache_mode = force_generic_plan; \
    SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SELECT pg_backend_pid()";

/// The statements of one connection.
#[derive(Default)]
pub(super) struct PreparedStatements(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The id of the process of the server that has them, once there are any.
    backend: Option<String>,
    statements: HashMap<String, Use>,
}

enum Use {
    /// So many times, with these types of parameters.
    Sent(u8, Vec<Type>),
    Prepared(tokio_postgres::Statement),
}

impl PreparedStatements {
    /// The prepared statement for a text, if there is one. Counts the use otherwise.
    pub(super) fn find(
        &self,
        sql: &str,
        types: impl ExactSizeIterator<Item = Type>,
    ) -> Option<tokio_postgres::Statement> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = known.statements.len() >= STATEMENTS_MAX;
        match known.statements.get_mut(sql) {
            Some(Use::Prepared(statement)) => {
                Some(statement.clone()).filter(|statement| types.eq(statement.params().iter().cloned()))
            }
            Some(Use::Sent(times, _)) => {
                *times = times.saturating_add(1);
                None
            }
            None if is_full => None,
            None => {
                known.statements.insert(sql.to_owned(), Use::Sent(1, types.collect()));
                None
            }
        }
    }

    /// The process of the server that has the statements, if there are any.
    pub(super) fn backend(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).backend.clone()
    }

    /// The statements that are worth preparing.
    pub(super) fn often_sent(&self) -> Vec<(String, Vec<Type>)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let often = known.statements.iter().filter_map(|(sql, of)| match of {
            Use::Sent(times, types) if *times >= OFTEN => Some((sql.clone(), types.clone())),
            Use::Sent(..) | Use::Prepared(_) => None,
        });
        often.collect()
    }

    /// Notes what this process of the server has prepared.
    ///
    /// # Errors
    /// [`Failure::NotPrepared`] where another process has prepared the statements before.
    pub(super) fn add(
        &self,
        backend: String,
        prepared: impl IntoIterator<Item = (String, tokio_postgres::Statement)>,
    ) -> Result<(), Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.backend.as_ref().is_some_and(|before| *before != backend) {
            return Err(Failure::NotPrepared);
        }
        known.backend = Some(backend);
        let prepared = prepared.into_iter().map(|(sql, statement)| (sql, Use::Prepared(statement)));
        known.statements.extend(prepared);
        Ok(())
    }
}
