//! Tools for the tests: the program under test, a scripted provider with responses in each dialect,
//! and a client.

pub mod admin;
pub mod beside;
pub mod canary;
pub mod client;
pub mod config;
pub mod database;
pub mod deadline;
pub mod disk;
pub mod guests;
pub mod host;
pub mod memory_group;
pub mod names;
pub mod processes;
pub mod program;
pub mod random;
pub mod raw;
pub mod record;
#[expect(dead_code, reason = "the tests of the runtime use the rest")]
#[path = "../../host/runtime/tests/all/rogue.rs"]
pub mod rogue;
pub mod schema;
pub mod script;
pub mod shim;
pub mod site;
pub mod small_disk;
pub mod store;
pub mod upstream;
