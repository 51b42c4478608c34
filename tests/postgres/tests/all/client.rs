//! A client as the host has it.

use tokio_postgres::{Client, Error, NoTls};

/// Connects without TLS. The connection is served by a task until client or server leaves.
pub(crate) async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The first column of the only row.
pub(crate) async fn number(client: &Client, sql: &str) -> Result<i64, Error> {
    Ok(client.query_typed(sql, &[]).await?.first().unwrap().get(0))
}
