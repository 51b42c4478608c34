//! The embedded storage engine: fjall's database, and the files beside it that detect what the
//! database alone would not.

mod anchor;
mod database;
mod journal;
mod lock;
mod rule;
mod versions;

#[cfg(any(test, fuzzing))]
pub(crate) use anchor::SLOT_BYTES;
pub(crate) use anchor::{Anchor, AnchorContent, AnchorSlot};
#[cfg(fuzzing)]
pub(crate) use anchor::{encode, newest};
pub(crate) use database::Database;
pub(crate) use journal::open;
pub use lock::{DirectoryLock, LockError};
pub(crate) use rule::{Evidence, NO_ANCHOR, judge};
