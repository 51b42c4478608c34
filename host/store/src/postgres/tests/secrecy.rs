//! Values of secrets are in no file of the server.

use cofferdam_test_postgres::{self as kit, Options};

use super::World;

#[test]
fn a_value_is_in_no_file_of_the_database_and_not_in_its_log() {
    if !kit::installed() {
        return;
    }
    let server = Options::new().setting("log_statement", "all").start().unwrap();
    let world = World::on(server.database("secrecy").unwrap());
    let host = world.host();
    let workspace = host.create_workspace("findable-workspace-name").unwrap().id;
    let canary = "canary-7c1f0a93b5e24d68";
    for name in ["a", "b"] {
        host.put(workspace, name, canary).unwrap();
    }
    host.put(workspace, "b", &canary.repeat(1_000)).unwrap();
    host.delete(workspace, "a").unwrap();
    // A refused statement is logged with its text.
    let refused = world.runtime.block_on(world.session.script("INSERT INTO secret (k) VALUES (NULL)"));
    refused.unwrap_err();
    host.engine.close();
    server.query("CHECKPOINT").unwrap();
    let found = |bytes: &[u8]| server.files_containing(bytes).unwrap();
    assert!(!found(b"findable-workspace-name").is_empty(), "names are in the clear, so the search works");
    assert_eq!(found(canary.as_bytes()), [] as [std::path::PathBuf; 0]);
    assert_eq!(found(&canary.as_bytes()[..16]), [] as [std::path::PathBuf; 0]);
    let log = server.log();
    assert!(log.contains("INSERT INTO secret") && !log.contains(&canary[..16]));
    let hex = crate::hex(canary.as_bytes());
    assert!(found(hex.as_bytes()).is_empty() && !log.contains(&hex));
}
