//! The threads that serve connections: one for each processor, each with a scheduler of its own.
//!
//! A connection stays on one thread, with its requests, their guests and their connections to
//! providers. So a request wakes no other processor, its memory stays in one processor's caches,
//! and the schedulers share no queue.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use cofferdam_runtime::{processors, tune};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The schedulers among which connections are distributed.
#[derive(Clone)]
pub(crate) struct Workers(Arc<[Worker]>);

struct Worker {
    scheduler: Handle,
    /// Tasks that run on it: connections, and the requests of HTTP/2 connections.
    tasks: AtomicUsize,
}

/// The threads of [`Workers`]. They end when this is dropped.
pub(crate) struct WorkerThreads {
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a thread for each processor.
    ///
    /// # Errors
    ///
    /// A thread or its scheduler cannot be created.
    pub(crate) fn start() -> io::Result<(Self, WorkerThreads)> {
        let mut running = WorkerThreads { stop: CancellationToken::new(), threads: Vec::new() };
        let mut workers = Vec::new();
        for _ in 0..processors() {
            let mut builder = Builder::new_current_thread();
            let runtime = tune(builder.enable_all()).build()?;
            workers.push(Worker { scheduler: runtime.handle().clone(), tasks: AtomicUsize::new(0) });
            let stop = running.stop.clone();
            let thread = thread::Builder::new().name("cofferdam".to_owned());
            running.threads.push(thread.spawn(move || {
                runtime.block_on(stop.cancelled());
                // Does not wait for blocking threads, which may hang with the disk.
                runtime.shutdown_background();
            })?);
        }
        Ok((Self(workers.into()), running))
    }

    /// The scheduler of the current thread alone.
    pub(crate) fn current() -> Self {
        Self(Arc::new([Worker { scheduler: Handle::current(), tasks: AtomicUsize::new(0) }]))
    }

    /// Runs a task on the thread with the fewest tasks, and counts it in `tasks`.
    pub(crate) fn spawn(&self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        let least = self.0.iter().enumerate().min_by_key(|(_, worker)| worker.tasks.load(Ordering::Relaxed));
        let Some((index, worker)) = least else { return };
        worker.tasks.fetch_add(1, Ordering::Relaxed);
        let running = Running { workers: self.clone(), index };
        let counted = async move {
            let _running = running;
            task.await;
        };
        tasks.spawn_on(counted, &worker.scheduler);
    }
}

/// A task that is counted for its worker until this is dropped.
struct Running {
    workers: Workers,
    index: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(worker) = self.workers.0.get(self.index) {
            worker.tasks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A thread that panicked has logged why.
            drop(thread.join());
        }
    }
}
