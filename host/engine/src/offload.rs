//! Work on long input, beside the threads that serve all requests: what takes milliseconds at a time would hold up
//! every other task of its thread.

use crate::refusal::Refusal;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Input up to this length is worked on where it is: handing it over takes longer.
const BYTES_INLINE: usize = 256 << 10;

/// As many at once as there are processors. The requests that wait are bounded by what all their bodies may take.
static TURNS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))));

/// Does `work`, which grows with this many bytes of input.
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
    async fn only_long_input_leaves_the_thread() {
        let here = thread::current().id();
        assert_eq!(thread_for(BYTES_INLINE).await, here);
        assert_ne!(thread_for(BYTES_INLINE + 1).await, here);
    }
}
