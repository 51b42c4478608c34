//! What the tests are written with: the program under test, a scripted
//! provider, and a client.

pub mod client;
pub mod host;
pub mod upstream;
