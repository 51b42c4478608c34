//! The memory limit of an instance: all its linear memories and tables together, however the
//! component is built.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use crate::account::InstanceAccount;
use crate::grant::Grant;
use crate::manifest::MEMORY_MIB_MAX;
use crate::memory::{MemoryShare, OWN_BYTES, Taken, guests_max};

/// Core instances in one component: main module, adapters and shims. A component of a Python
/// toolchain has 38, because it is linked from shared libraries.
pub(crate) const CORE_INSTANCES_MAX: u32 = 48;
/// Linear memories in one component.
pub(crate) const MEMORIES_MAX: u32 = 4;
/// Tables in one component.
pub(crate) const TABLES_MAX: u32 = 8;
/// Elements in one table. Interpreters use tens of thousands.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 60_000;
/// Memory that one table element takes on the host.
const ELEMENT_BYTES: usize = size_of::<usize>();

const MIB: usize = 1024 * 1024;
/// Memory per byte of a long request: the request itself, its texts without escapes, and the output,
/// in a buffer that grows by doubling.
const BYTES_PER_BYTE: usize = 6;
/// Memory that a plugin needs besides, independent of the request.
const BYTES_BESIDE: usize = 16 * MIB;

/// The resource limiter of one store.
pub(crate) struct Limiter {
    account: Arc<InstanceAccount>,
    bytes_max: usize,
    bytes: usize,
    share: MemoryShare,
    has_room: bool,
}

impl Limiter {
    pub(crate) fn new(account: Arc<InstanceAccount>, bytes_max: usize) -> Self {
        Self { account, bytes_max, bytes: 0, share: MemoryShare::of_guest(), has_room: false }
    }

    /// Raises the limit for a request of `request_bytes` bytes, if it is a long one and the operator
    /// did not set the limit. The memory is taken at once, so that the request does not fail halfway.
    ///
    /// # Errors
    ///
    /// [`Taken`] if other guests hold the memory.
    pub(crate) fn make_room(&mut self, request_bytes: usize, grant: &Grant) -> Result<(), Taken> {
        let wanted = request_bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(BYTES_BESIDE);
        let most = (MEMORY_MIB_MAX as usize * MIB).min(guests_max().saturating_add(OWN_BYTES));
        let bytes_max = wanted.min(most);
        if grant.is_memory_set || bytes_max <= grant.memory_bytes {
            return Ok(());
        }
        self.share.cover(bytes_max)?;
        self.bytes_max = bytes_max;
        self.has_room = true;
        Ok(())
    }

    /// Whether the limit was raised for a long request.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room
    }

    /// Current size of all memories and tables, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn grow(&mut self, current: usize, desired: usize, unit: usize) -> bool {
        let more = desired.saturating_sub(current).saturating_mul(unit);
        let total = self.bytes.saturating_add(more);
        if total > self.bytes_max {
            self.account.deny_memory();
            return false;
        }
        if self.share.cover(total).is_err() {
            self.account.deny_shared_memory();
            return false;
        }
        self.bytes = total;
        true
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(current, desired, 1))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS_MAX {
            self.account.deny_memory();
            return Ok(false);
        }
        Ok(self.grow(current, desired, ELEMENT_BYTES))
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::account::Turns;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let account = Arc::new(InstanceAccount::new(Arc::new(Turns::new(1)), Duration::from_secs(1), None));
        let mut limiter = Limiter::new(Arc::clone(&account), 1 << 20);
        assert!(limiter.memory_growing(0, 1 << 19, None).unwrap());
        assert!(limiter.memory_growing(0, 1 << 18, None).unwrap());
        assert!(limiter.table_growing(0, 10_000, None).unwrap());
        assert_eq!(account.cut(), None);
        assert!(!limiter.memory_growing(1 << 19, 1 << 20, None).unwrap());
        assert!(account.cut().is_some());
    }

    #[test]
    fn huge_sizes_do_not_overflow() {
        let account = Arc::new(InstanceAccount::new(Arc::new(Turns::new(1)), Duration::from_secs(1), None));
        let mut limiter = Limiter::new(account, 1 << 20);
        assert!(!limiter.memory_growing(0, usize::MAX, None).unwrap());
        assert!(!limiter.table_growing(0, usize::MAX, None).unwrap());
    }
}
