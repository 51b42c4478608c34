//! `[store]`: the disk that the store lies on.

use super::document::Table;

/// The most that `free_bytes_min` can be: 1 EiB.
const FREE_BYTES_MAX: u64 = 1 << 60;

/// How the store treats the disk that it lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store {
    /// With less free, changes by tenants and requests of prepaid workspaces are refused; 0 refuses nothing.
    pub free_bytes_min: u64,
}

pub(super) fn read(table: &Table<'_>) -> Store {
    Store { free_bytes_min: table.integer("free_bytes_min", 0..=FREE_BYTES_MAX).unwrap_or(0) }
}
