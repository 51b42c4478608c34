//! The embedded storage engine: fjall's database with the one lane that writes to it, and the files
//! beside it that detect what the database alone would not.

mod anchor;
mod database;
mod engine;
mod journal;
mod lane;
mod lock;
mod log;
mod rule;
mod state;
mod versions;

#[cfg(any(test, fuzzing))]
pub(crate) use anchor::SLOT_BYTES;
pub(crate) use anchor::{Anchor, AnchorContent, AnchorSlot};
#[cfg(any(test, fuzzing))]
pub(crate) use anchor::{encode, newest};
pub(crate) use database::Database;
pub(crate) use engine::{Engine, Start};
pub(crate) use journal::open;
pub use lock::{DirectoryLock, LockError};
pub(crate) use log::last_audit_row;
pub(crate) use rule::{Evidence, NO_ANCHOR, judge};
