//! Statements with typed parameters, and several of them in one round trip.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::Poll;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, RowStream};

use super::connect::DatabaseSession;
use super::failure::Failure;

/// A statement and its parameters.
pub(super) struct Statement {
    sql: Cow<'static, str>,
    parameters: Vec<(Parameter, Type)>,
}

type Parameter = Box<dyn ToSql + Sync + Send>;

impl Statement {
    pub(super) fn new(sql: impl Into<Cow<'static, str>>) -> Statement {
        Statement { sql: sql.into(), parameters: Vec::new() }
    }

    /// Adds the next parameter.
    pub(super) fn with(mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> Statement {
        self.parameter(value, of);
        self
    }

    /// Adds a parameter and returns its number.
    pub(super) fn parameter(&mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> usize {
        self.parameters.push((Box::new(value), of));
        self.parameters.len()
    }

    /// Adds to the text.
    pub(super) fn push(&mut self, sql: &str) {
        self.sql.to_mut().push_str(sql);
    }

    fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        fn typed((value, of): &(Parameter, Type)) -> (&(dyn ToSql + Sync), Type) {
            (&**value, of.clone())
        }
        self.parameters.iter().map(typed).collect()
    }

    /// The same statement as the server has prepared it, with the parameters.
    fn prepared(
        &self,
        session: &DatabaseSession,
    ) -> Option<(tokio_postgres::Statement, impl ExactSizeIterator<Item = &(dyn ToSql + Sync)>)> {
        let types = self.parameters.iter().map(|(_, of)| of.clone());
        let statement = session.prepared.as_ref()?.find(&self.sql, types)?;
        fn untyped((value, _): &(Parameter, Type)) -> &(dyn ToSql + Sync) {
            &**value
        }
        Some((statement, self.parameters.iter().map(untyped)))
    }

    /// Runs it unnamed, so that it works through a pooler, and returns the number of rows it changed.
    pub(super) async fn execute(&self, client: &Client) -> Result<u64, Failure> {
        Ok(client.execute_typed(&self.sql, &self.typed()).await?)
    }

    /// The same within a transaction that `transaction::begin` began: as the server has prepared it,
    /// if it has.
    pub(super) async fn execute_prepared(&self, session: &DatabaseSession) -> Result<u64, Failure> {
        match self.prepared(session) {
            Some((statement, parameters)) => Ok(session.client.execute_raw(&statement, parameters).await?),
            None => self.execute(&session.client).await,
        }
    }

    /// Runs it unnamed and returns its rows. Their bytes together must be at most `bytes_max`, as `bytes`
    /// counts them.
    pub(super) async fn rows(
        &self,
        client: &Client,
        bytes_max: usize,
        bytes: impl Fn(&Row) -> Result<usize, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        bounded_rows(client.query_typed_raw(&self.sql, self.typed()).await?, bytes_max, bytes).await
    }

    /// The same within a transaction that `transaction::begin` began: as the server has prepared it,
    /// if it has.
    pub(super) async fn rows_prepared(
        &self,
        session: &DatabaseSession,
        bytes_max: usize,
        bytes: impl Fn(&Row) -> Result<usize, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let Some((statement, parameters)) = self.prepared(session) else {
            return self.rows(&session.client, bytes_max, bytes).await;
        };
        bounded_rows(session.client.query_raw(&statement, parameters).await?, bytes_max, bytes).await
    }
}

/// The rows of an answer, as long as their bytes together are at most `bytes_max`.
async fn bounded_rows(
    answer: RowStream,
    bytes_max: usize,
    bytes: impl Fn(&Row) -> Result<usize, Failure>,
) -> Result<Vec<Row>, Failure> {
    use futures_util::TryStreamExt;
    let mut answer = std::pin::pin!(answer);
    let (mut rows, mut sum) = (Vec::new(), 0);
    while let Some(row) = answer.try_next().await? {
        sum += bytes(&row)?;
        if sum > bytes_max {
            return Err(Failure::TooMuch(bytes_max));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// One of the statements of a flight.
pub(super) type InFlight<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends all statements at once, in this order, and waits for all answers. A statement is sent when
/// its future is polled for the first time. One that fails then was not sent, and those after it are
/// not sent either: COMMIT must not follow where a write is missing.
pub(super) async fn flight<T>(statements: Vec<InFlight<'_, Result<T, Failure>>>) -> Vec<Result<T, Failure>> {
    let mut running = Vec::new();
    for mut statement in statements {
        let mut answer = None;
        let is_sent = std::future::poll_fn(|context| match statement.as_mut().poll(context) {
            Poll::Ready(found) => {
                let is_sent = found.is_ok();
                answer = Some(found);
                Poll::Ready(is_sent)
            }
            Poll::Pending => Poll::Ready(true),
        });
        let is_sent = is_sent.await;
        running.push((statement, answer));
        if !is_sent {
            break;
        }
    }
    std::future::poll_fn(|context| {
        let mut is_pending = false;
        for (statement, answer) in running.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match statement.as_mut().poll(context) {
                Poll::Ready(found) => *answer = Some(found),
                Poll::Pending => is_pending = true,
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, answer)| answer).collect()
}
