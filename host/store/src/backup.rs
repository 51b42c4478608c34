//! Backups.

mod format;
