//! Primary and synchronous standby: what a promoted standby has, and what it lacks.

use crate::client::{connect, number};
use cofferdam_test_postgres::{Database, Options, Pair, Server, installed};
use tokio_postgres::Client;

/// A pair and a database with a table `rows` on it.
async fn pair() -> (Pair, Database, Client) {
    let pair = Options::new().without_sync().start_pair().unwrap();
    let database = pair.primary.database("paired").unwrap();
    let client = connect(&database.url()).await.unwrap();
    client.batch_execute("CREATE TABLE rows (id bigint)").await.unwrap();
    pair.until_replayed().unwrap();
    (pair, database, client)
}

async fn add(client: &Client, id: i64) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("INSERT INTO rows VALUES ({id})")).await
}

async fn sum(database: &Database, server: &Server) -> i64 {
    let client = connect(&database.at(server.port()).url()).await.unwrap();
    number(&client, "SELECT coalesce(sum(id), 0)::bigint FROM rows").await.unwrap()
}

#[tokio::test]
async fn a_promoted_standby_has_every_acknowledged_row() {
    if !installed() {
        return;
    }
    let (mut pair, database, client) = pair().await;
    for id in 1..=100 {
        add(&client, id).await.unwrap();
    }
    pair.primary.kill9().unwrap();
    assert!(add(&client, 1000).await.is_err());
    pair.promote().unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 5050);
    let client = connect(&database.at(pair.standby.port()).url()).await.unwrap();
    add(&client, 1).await.unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 5051);
}

#[tokio::test]
async fn a_stopped_primary_acknowledges_nothing_after_its_standby_was_promoted() {
    if !installed() {
        return;
    }
    let (pair, database, client) = pair().await;
    add(&client, 1).await.unwrap();
    pair.primary.stop_signal().unwrap();
    let late = tokio::spawn(async move { add(&client, 2).await });
    pair.promote().unwrap();
    pair.primary.continue_signal().unwrap();
    // It answers, and waits for a standby that is gone.
    pair.primary
        .until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
        .await
        .unwrap();
    assert!(!late.is_finished());
    assert_eq!(sum(&database, &pair.standby).await, 1);
}

#[tokio::test]
async fn commits_wait_while_the_standby_is_dead() {
    if !installed() {
        return;
    }
    let (mut pair, database, client) = pair().await;
    pair.standby.kill9().unwrap();
    let waiting = tokio::spawn(async move { add(&client, 3).await });
    pair.primary
        .until("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
        .await
        .unwrap();
    // Others do not see what is not acknowledged.
    assert_eq!((sum(&database, &pair.primary).await, waiting.is_finished()), (0, false));
    pair.standby.restart().unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(sum(&database, &pair.primary).await, 3);
}

#[tokio::test]
async fn a_detached_standby_lacks_acknowledged_rows_until_it_is_attached() {
    if !installed() {
        return;
    }
    let (mut pair, database, client) = pair().await;
    add(&client, 1).await.unwrap();
    pair.detach().unwrap();
    add(&client, 10).await.unwrap();
    pair.until_replayed().unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 1);
    pair.attach().unwrap();
    add(&client, 100).await.unwrap();
    pair.detach().unwrap();
    add(&client, 1000).await.unwrap();
    pair.primary.kill9().unwrap();
    pair.promote().unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 111);
}

#[tokio::test]
async fn a_standby_that_does_not_replay_lags_and_loses_nothing() {
    if !installed() {
        return;
    }
    let (mut pair, database, client) = pair().await;
    pair.replay(false).unwrap();
    add(&client, 1).await.unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 0);
    pair.replay(true).unwrap();
    pair.until_replayed().unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 1);
    pair.replay(false).unwrap();
    add(&client, 2).await.unwrap();
    pair.primary.kill9().unwrap();
    pair.promote().unwrap();
    assert_eq!(sum(&database, &pair.standby).await, 3);
}
