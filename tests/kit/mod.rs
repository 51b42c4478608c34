//! What the tests are written with: the program under test, a scripted
//! provider, and a client.

pub mod admin;
pub mod client;
pub mod guests;
pub mod host;
pub mod upstream;
