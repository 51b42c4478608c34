//! Additional memory for long requests. A plugin's ordinary limit is enough for requests of a few
//! megabytes. A longer request gets more, from a budget that all plugins of the process share.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::grant::Grant;
use crate::manifest::MEMORY_MIB_MAX;

const MIB: usize = 1024 * 1024;
/// Memory per byte of a request: the request itself, its texts without escapes, and the output, in
/// a buffer that grows by doubling.
const BYTES_PER_BYTE: usize = 6;
/// Memory that a plugin needs besides, independent of the request.
const BYTES_BESIDE: usize = 16 * MIB;
/// Shared budget of all instances beyond the limits of their grants, in MiB.
const SHARED_MIB: usize = 1024;

static SHARED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(SHARED_MIB)));

/// A raised memory limit. Its share of the budget is given back on drop.
pub(crate) struct Room {
    pub(crate) bytes_max: usize,
    _share: OwnedSemaphorePermit,
}

/// The shared budget has not enough memory left.
#[derive(Debug)]
pub(crate) struct Taken;

/// The additional memory for a request of `request_bytes` bytes. `None` for most requests, and if
/// the operator set the plugin's memory limit.
pub(crate) fn room_for(request_bytes: usize, grant: &Grant) -> Result<Option<Room>, Taken> {
    room_in(&SHARED, request_bytes, grant.memory_bytes, grant.is_memory_set)
}

fn room_in(
    shared: &Arc<Semaphore>,
    request_bytes: usize,
    own_bytes: usize,
    is_set: bool,
) -> Result<Option<Room>, Taken> {
    let wanted = request_bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(BYTES_BESIDE);
    let bytes_max = wanted.min(MEMORY_MIB_MAX as usize * MIB);
    let more = bytes_max.saturating_sub(own_bytes);
    if is_set || more == 0 {
        return Ok(None);
    }
    let mib = u32::try_from(more.div_ceil(MIB)).map_err(|_| Taken)?;
    let share = Arc::clone(shared).try_acquire_many_owned(mib).map_err(|_| Taken)?;
    Ok(Some(Room { bytes_max, _share: share }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_share_the_memory_beyond_the_grants() {
        let shared = Arc::new(Semaphore::new(400));
        let room = |request| room_in(&shared, request, 64 * MIB, false);
        assert!(room(8 * MIB).unwrap().is_none(), "its own memory is enough");
        let one = room(20 * MIB).unwrap().unwrap();
        assert_eq!(one.bytes_max, 136 * MIB);
        let most = room(usize::MAX).unwrap().unwrap();
        assert_eq!(most.bytes_max, 256 * MIB);
        assert_eq!(shared.available_permits(), 400 - 72 - 192);
        assert!(room(usize::MAX).is_err());
        drop((one, most));
        assert_eq!(shared.available_permits(), 400);
        assert!(
            room_in(&shared, 32 * MIB, 64 * MIB, true).unwrap().is_none(),
            "the operator has the last word"
        );
    }
}
