//! `[store]`: settings about the disk of the store.

use super::document::Table;

/// The maximum of `free_bytes_min`: 1 EiB.
const FREE_BYTES_MAX: u64 = 1 << 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// With less free disk space, writes by tenants and requests of prepaid workspaces are refused;
    /// 0 turns the check off.
    pub free_bytes_min: u64,
}

pub(super) fn read(table: &Table<'_>) -> StoreConfig {
    StoreConfig { free_bytes_min: table.integer("free_bytes_min", 0..=FREE_BYTES_MAX).unwrap_or(0) }
}
