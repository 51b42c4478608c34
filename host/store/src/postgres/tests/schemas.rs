//! Migrations.

use std::sync::Arc;

use cofferdam_test_postgres::{self as kit, Server};

use super::super::failure::Failure;
use super::super::schema;
use super::{World, database, runtime};

#[test]
fn hosts_that_migrate_at_the_same_time_make_the_schema_once() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("migrations").unwrap();
    let database = Arc::new(database(&address.url()));
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let database = Arc::clone(&database);
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let session = database.connect().await.unwrap();
                    schema::migrate(&session).await.unwrap();
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let rows = Server::shared()
        .unwrap()
        .query_in("migrations", "SELECT convert_from(body, 'UTF8') FROM store")
        .unwrap();
    assert_eq!(rows, [[Some("2".to_owned())]]);
}

#[test]
fn a_database_with_another_schema_is_refused() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("other_schema").unwrap();
    runtime().block_on(async {
        let session = database(&address.url()).connect().await.unwrap();
        let empty = schema::check(&session).await;
        assert!(matches!(empty, Err(Failure::OtherSchema { found: 0, known: 2 })), "{empty:?}");
        schema::migrate(&session).await.unwrap();
        session.script("UPDATE store SET body = '3' WHERE k = 'schema'").await.unwrap();
        let newer = schema::migrate(&session).await;
        assert!(matches!(newer, Err(Failure::OtherSchema { found: 3, known: 2 })), "{newer:?}");
    });
}

#[test]
fn rows_of_the_schema_are_no_rows_of_the_store() {
    let Some(world) = World::new("schema_rows") else { return };
    let rows = world.rows(crate::rows::Keyspace::Keys);
    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, [crate::rows::HEADER, crate::seal::STORE_KEYS]);
}
