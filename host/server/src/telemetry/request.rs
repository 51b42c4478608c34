//! The request to which a log line belongs. A span of `tracing` could carry the id too, but it is
//! created, entered, left and formatted for every request, even if no line is logged. This is one
//! thread-local value, set while a request is polled and read only when a line is written.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;

use uuid::Uuid;

thread_local! {
    /// The request that this thread is polling.
    static POLLED: Cell<Option<Uuid>> = const { Cell::new(None) };
}

/// Runs some work of a request; lines logged by it carry the request's id.
pub(crate) fn within<T>(id: Uuid, work: impl FnOnce() -> T) -> T {
    let _restored = Restored(POLLED.replace(Some(id)));
    work()
}

/// Like [`within`], for all polls of a future. The caller pins it: an asynchronous function that pins its
/// argument keeps it in memory twice.
pub(crate) async fn within_polls<T>(id: Uuid, mut future: impl Future<Output = T> + Unpin) -> T {
    poll_fn(|context| within(id, || Pin::new(&mut future).poll(context))).await
}

/// The request that this thread is working on.
pub(super) fn current() -> Option<Uuid> {
    POLLED.get()
}

/// Restores the previous value, also after a panic.
struct Restored(Option<Uuid>);

impl Drop for Restored {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::pin::pin;

    use uuid::Uuid;

    use super::{current, within, within_polls};

    #[test]
    fn id_is_set_only_during_its_work() {
        let (outer, inner) = (Uuid::from_u128(1), Uuid::from_u128(2));
        within(outer, || {
            assert_eq!(within(inner, current), Some(inner));
            assert_eq!(current(), Some(outer));
            let panicked = catch_unwind(|| within(inner, || panic!("in the work of a request")));
            assert!(panicked.is_err());
            assert_eq!(current(), Some(outer));
        });
        assert_eq!(current(), None);
    }

    #[tokio::test]
    async fn id_is_set_in_all_polls_of_its_future_and_not_between_them() {
        let id = Uuid::from_u128(3);
        let work = pin!(async {
            tokio::task::yield_now().await;
            current()
        });
        let inside = within_polls(id, work);
        let beside = async { current() };
        assert_eq!(tokio::join!(inside, beside), (Some(id), None));
    }
}
