//! The last requests that were refused before they reached the engine: without a good key, without
//! the right, beyond a limit, or malformed. Equal ones are one entry with a count, so a client that
//! repeats a refused request fills nothing. They are kept apart from the recorded requests, which a
//! flood of refused ones therefore cannot push out.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::timestamp::timestamp;

/// Entries that are kept; the one that was seen longest ago makes way.
const ENTRIES_MAX: usize = 64;

/// A refused request, and how many others were refused like it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RefusedRequest {
    /// The id of the last one in the log.
    pub(crate) request_id: Uuid,
    pub(crate) route: &'static str,
    pub(crate) status: u16,
    pub(crate) error_type: &'static str,
    /// Why the last one was refused: a fixed text, or one that names a limit of the configuration.
    pub(crate) message: String,
    /// The key, where it is a good one.
    pub(crate) key_id: Option<String>,
    /// The address of the client; of IPv6 the network.
    pub(crate) address: IpAddr,
    pub(crate) count: u64,
    #[serde(rename = "first_at", serialize_with = "as_time")]
    pub(crate) first_ms: u64,
    #[serde(rename = "last_at", serialize_with = "as_time")]
    pub(crate) last_ms: u64,
}

/// The last refused requests, in the order in which they were seen last.
#[derive(Default)]
pub(crate) struct RefusedRequests(Mutex<VecDeque<RefusedRequest>>);

impl RefusedRequests {
    pub(crate) fn note(&self, mut refused: RefusedRequest) {
        let mut kept = self.lock();
        let like = kept.iter().position(|other| other.is_like(&refused));
        if let Some(known) = like.and_then(|index| kept.remove(index)) {
            refused.count = known.count.saturating_add(refused.count);
            refused.first_ms = known.first_ms;
        } else if kept.len() >= ENTRIES_MAX {
            kept.pop_front();
        }
        kept.push_back(refused);
    }

    /// The entries, the one that was seen last first.
    pub(crate) fn list(&self) -> Vec<RefusedRequest> {
        self.lock().iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RefusedRequest>> {
        // The entries stay valid when another thread has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusedRequest {
    fn is_like(&self, other: &Self) -> bool {
        (self.status, self.route, self.error_type) == (other.status, other.route, other.error_type)
            && self.address == other.address
            && self.key_id == other.key_id
    }
}

fn as_time<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*ms))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use uuid::Uuid;

    use super::{ENTRIES_MAX, RefusedRequest, RefusedRequests};

    fn refused(number: u32, status: u16, at_ms: u64) -> RefusedRequest {
        RefusedRequest {
            request_id: Uuid::from_u128(at_ms.into()),
            route: "responses",
            status,
            error_type: "authentication",
            message: "Invalid or missing API key".to_owned(),
            key_id: None,
            address: Ipv4Addr::from(number).into(),
            count: 1,
            first_ms: at_ms,
            last_ms: at_ms,
        }
    }

    #[test]
    fn repeated_refusals_are_one_entry_with_a_count() {
        let kept = RefusedRequests::default();
        for at_ms in 0..1000 {
            kept.note(refused(1, 401, at_ms));
        }
        kept.note(refused(1, 403, 2000));
        kept.note(refused(1, 401, 3000));
        let list = kept.list();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].status, list[0].count), (401, 1001));
        assert_eq!((list[0].first_ms, list[0].last_ms), (0, 3000));
        assert_eq!(list[0].request_id, Uuid::from_u128(3000));
        assert_eq!((list[1].status, list[1].count), (403, 1));
    }

    #[test]
    fn number_of_entries_is_bounded() {
        let kept = RefusedRequests::default();
        for number in 0..10_000 {
            kept.note(refused(number, 401, number.into()));
        }
        let list = kept.list();
        assert_eq!(list.len(), ENTRIES_MAX);
        assert_eq!(list[0].last_ms, 9_999);
    }
}
