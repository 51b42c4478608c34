//! The proxy: each fault at each place, and what it counts.

use crate::client::{connect, number};
use cofferdam_test_postgres::{Database, Fault, PATIENCE, Place, Proxy, Rule, Server, installed};
use std::time::Duration;
use tokio_postgres::{Client, Error};

/// A database with a table `rows`, behind a proxy.
struct Scene {
    database: Database,
    proxy: Proxy,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let server = Server::shared().unwrap();
        let database = server.database(name).unwrap();
        let client = connect(&database.url()).await.unwrap();
        client.batch_execute("CREATE TABLE rows (id bigint)").await.unwrap();
        let proxy = Proxy::start(database.port).unwrap();
        Self { database, proxy }
    }

    async fn client(&self) -> Client {
        connect(&self.database.at(self.proxy.port()).url()).await.unwrap()
    }

    /// Waits for so many sessions of the database.
    async fn until_sessions(&self, which: &str, count: u32) {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = ";
        let sql = format!("{sql}'{}' AND {which}", self.database.name);
        Server::shared().unwrap().until(&sql, &count.to_string()).await.unwrap();
    }

    /// Rows that were committed, asked past the proxy. The lock waits for a transaction that still runs.
    async fn rows(&self) -> i64 {
        let client = connect(&self.database.url()).await.unwrap();
        client.batch_execute("BEGIN; LOCK TABLE rows").await.unwrap();
        number(&client, "SELECT count(*) FROM rows").await.unwrap()
    }
}

/// A transaction of two flights, as a host writes one.
async fn put(client: &Client) -> Result<(), Error> {
    client.batch_execute("BEGIN; SELECT 'first'").await?;
    client.batch_execute("INSERT INTO rows VALUES (1); COMMIT; SELECT 'third'").await
}

#[tokio::test]
async fn cuts_at_each_place_leave_the_transaction_whole_or_absent() {
    if !installed() {
        return;
    }
    let scene = Scene::new("cuts").await;
    let mut committed = 0;
    let cases = [
        (Place::Flight(1), Fault::CutBefore, 0),
        (Place::Flight(1), Fault::CutAfter, 0),
        (Place::Flight(1), Fault::SwallowReply, 0),
        (Place::Flight(2), Fault::CutBefore, 0),
        (Place::Flight(2), Fault::CutAfter, 1),
        (Place::Sql("INSERT".to_owned()), Fault::CutBefore, 0),
        (Place::Commit, Fault::CutBefore, 0),
        (Place::Commit, Fault::CutAfter, 1),
        (Place::Commit, Fault::SwallowReply, 1),
    ];
    for (strikes, (place, fault, commits)) in (1..).zip(cases) {
        let client = scene.client().await;
        scene.proxy.add(Rule::new(place.clone(), fault).within("'first'"));
        match put(&client).await {
            Err(error) => assert!(error.is_closed() || error.as_db_error().is_none(), "{error}"),
            // The answer may pass before the connection is cut.
            Ok(()) => assert_eq!(fault, Fault::CutAfter, "{place:?}"),
        }
        scene.proxy.until_struck(strikes).await.unwrap();
        committed += commits;
        // The backend of a connection that was cut has ended, with what it had received.
        scene.until_sessions("true", 0).await;
        assert_eq!(scene.rows().await, committed, "{place:?} {fault:?}");
    }
    let client = scene.client().await;
    put(&client).await.unwrap();
    assert_eq!(scene.rows().await, committed + 1);
}

#[tokio::test]
async fn commits_of_prepared_statements_are_found_where_they_are_executed() {
    if !installed() {
        return;
    }
    let scene = Scene::new("prepared").await;
    let client = scene.client().await;
    let commit = client.prepare("COMMIT").await.unwrap();
    scene.proxy.add(Rule::new(Place::Commit, Fault::CutBefore).nth(2));
    for _ in 0..2 {
        client.batch_execute("BEGIN; INSERT INTO rows VALUES (1)").await.unwrap();
        let executed = client.execute(&commit, &[]).await;
        assert_eq!(executed.is_err(), scene.proxy.struck() == 1);
    }
    assert_eq!((scene.proxy.struck(), scene.rows().await), (1, 1));
}

#[tokio::test]
async fn held_commits_go_on_when_they_are_released() {
    if !installed() {
        return;
    }
    let scene = Scene::new("held").await;
    for (strikes, fault) in
        (1..).zip([Fault::Hold, Fault::Delay(Duration::from_secs(600)), Fault::SilenceBefore])
    {
        let client = scene.client().await;
        scene.proxy.add(Rule::new(Place::Commit, fault));
        let running = tokio::spawn(async move { put(&client).await });
        scene.proxy.until_struck(strikes).await.unwrap();
        assert!(!running.is_finished());
        scene.proxy.release();
        running.await.unwrap().unwrap();
        assert_eq!(scene.rows().await, i64::from(strikes));
    }
    // A short delay ends by itself.
    let client = scene.client().await;
    scene.proxy.add(Rule::new(Place::Commit, Fault::Delay(Duration::from_millis(1))));
    put(&client).await.unwrap();
    assert_eq!((scene.proxy.struck(), scene.rows().await), (4, 4));
}

#[tokio::test]
async fn silence_after_a_commit_hides_that_it_is_done() {
    if !installed() {
        return;
    }
    let scene = Scene::new("silent").await;
    let client = scene.client().await;
    scene.proxy.add(Rule::new(Place::Commit, Fault::SilenceAfter));
    let running = tokio::spawn(async move { put(&client).await });
    scene.proxy.until_struck(1).await.unwrap();
    scene.until_sessions("state = 'idle'", 1).await;
    assert_eq!(scene.rows().await, 1);
    assert!(!running.is_finished());
    scene.proxy.release();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn half_closed_connections_answer_or_leave_the_server_in_its_transaction() {
    if !installed() {
        return;
    }
    let scene = Scene::new("half").await;
    let client = scene.client().await;
    scene.proxy.add(Rule::new(Place::Commit, Fault::CloseToServer));
    put(&client).await.unwrap();
    assert!(put(&client).await.is_err());
    assert_eq!(scene.rows().await, 1);
    let client = scene.client().await;
    scene.proxy.add(Rule::new(Place::Commit, Fault::CloseToClient));
    assert!(put(&client).await.is_err());
    scene.proxy.until_struck(2).await.unwrap();
    drop(client);
    scene.until_sessions("true", 0).await;
    assert_eq!(scene.rows().await, 2);
}

#[tokio::test]
async fn a_silent_proxy_keeps_connections_and_new_ones_waiting() {
    if !installed() {
        return;
    }
    let scene = Scene::new("all_silent").await;
    let client = scene.client().await;
    scene.proxy.fall_silent();
    let old = tokio::spawn(async move { put(&client).await });
    let url = scene.database.at(scene.proxy.port()).url();
    let new = tokio::spawn(async move { put(&connect(&url).await?).await });
    // Past the proxy the same server answers, and has none of it.
    assert_eq!(scene.rows().await, 0);
    assert!(!old.is_finished() && !new.is_finished());
    scene.proxy.release();
    old.await.unwrap().unwrap();
    new.await.unwrap().unwrap();
    assert_eq!(scene.rows().await, 2);
}

#[tokio::test]
async fn connections_are_cut_refused_and_led_elsewhere() {
    if !installed() {
        return;
    }
    let scene = Scene::new("led").await;
    let client = scene.client().await;
    scene.proxy.cut();
    assert!(put(&client).await.is_err());
    scene.proxy.refuse(true);
    let url = scene.database.at(scene.proxy.port()).url();
    assert!(connect(&url).await.is_err());
    scene.proxy.refuse(false);
    put(&connect(&url).await.unwrap()).await.unwrap();
    let other = Server::start().unwrap();
    scene.proxy.lead_to(other.port());
    // The other server has another password.
    assert!(connect(&url).await.is_err());
    let led = other.url().replace(&other.port().to_string(), &scene.proxy.port().to_string());
    connect(&led).await.unwrap();
}

#[tokio::test]
async fn round_trips_and_bytes_are_counted_for_each_connection() {
    if !installed() {
        return;
    }
    let scene = Scene::new("counted").await;
    let client = scene.client().await;
    put(&client).await.unwrap();
    let before = scene.proxy.total();
    assert_eq!((before.flights, before.round_trips, before.commits), (2, 2, 1));
    // One flight: parse, bind, describe, execute, sync.
    number(&client, "SELECT count(*) FROM rows").await.unwrap();
    assert_eq!(scene.proxy.total().round_trips, 3);
    // A statement that is prepared first takes two.
    client.query("SELECT 1::bigint", &[]).await.unwrap();
    let after = scene.proxy.total();
    assert_eq!(after.round_trips, 5);
    let long = "x".repeat(100_000);
    client.batch_execute(&format!("SELECT '{long}'")).await.unwrap();
    let end = scene.proxy.total();
    assert!(end.bytes_to_server - after.bytes_to_server > 100_000, "{end:?}");
    assert!(end.bytes_to_client - after.bytes_to_client > 100_000, "{end:?}");
    // Sent without a wait between them, they are two flights and one wait.
    let (one, other) = tokio::join!(client.batch_execute("SELECT 1"), client.batch_execute("SELECT 2"));
    one.and(other).unwrap();
    let pipelined = scene.proxy.total();
    assert_eq!((pipelined.flights - end.flights, pipelined.round_trips - end.round_trips), (2, 1));
    drop(client);
    let second = scene.client().await;
    put(&second).await.unwrap();
    let all = scene.proxy.connections();
    assert_eq!(all.iter().map(|one| one.commits).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn connections_that_have_ended_hold_no_sockets() {
    if !installed() {
        return;
    }
    let scene = Scene::new("many").await;
    let kept = scene.client().await;
    for _ in 0..20 {
        put(&scene.client().await).await.unwrap();
    }
    put(&kept).await.unwrap();
    assert_eq!(scene.proxy.connections().len(), 21);
    // Tasks of this thread and threads of the proxy close the others a moment later.
    let are_closed = async {
        while scene.proxy.open() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, are_closed).await.unwrap();
}

#[tokio::test]
async fn a_proxy_with_open_connections_ends() {
    if !installed() {
        return;
    }
    let scene = Scene::new("ended").await;
    let client = scene.client().await;
    scene.proxy.add(Rule::new(Place::Commit, Fault::Hold));
    let running = tokio::spawn(async move { put(&client).await });
    scene.proxy.until_struck(1).await.unwrap();
    drop(scene);
    assert!(running.await.unwrap().is_err());
}
