//! What the tests are written with: the program under test, a scripted
//! provider, what it says in each dialect, and a client.

pub mod admin;
pub mod client;
pub mod config;
pub mod guests;
pub mod host;
pub mod raw;
pub mod script;
pub mod store;
pub mod upstream;
