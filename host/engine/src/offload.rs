//! CPU-bound work on long input, moved off the async worker threads. Work of several milliseconds
//! would delay every other task of its thread.

use crate::refusal::Refusal;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Input up to this length, in bytes, is worked on in place: the hand-over to another thread would
/// take longer.
const BYTES_INLINE: usize = 256 << 10;

/// One permit for each processor. The requests that wait for one are bounded by the memory limit
/// for request bodies.
static TURNS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))));

/// Runs `work`, whose time grows with `bytes` of input: in place when the input is short, else on a
/// blocking thread.
///
/// # Errors
/// 500 when the work panicked.
pub(crate) async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    if bytes <= BYTES_INLINE {
        return Ok(work());
    }
    let turn = Arc::clone(&TURNS).acquire_owned().await.map_err(|_| Refusal::internal())?;
    let done = spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    done.await.map_err(|_| Refusal::internal())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};

    async fn thread_for(bytes: usize) -> ThreadId {
        aside(bytes, || thread::current().id()).await.unwrap()
    }

    #[tokio::test]
    async fn only_long_input_is_worked_on_in_another_thread() {
        let here = thread::current().id();
        assert_eq!(thread_for(BYTES_INLINE).await, here);
        assert_ne!(thread_for(BYTES_INLINE + 1).await, here);
    }
}
