//! The threads that serve connections: one for each processor, each with a scheduler of its own.
//!
//! A connection stays on one thread. Requests of HTTP/1 run on it; each request of an HTTP/2
//! connection is given to the thread with the fewest tasks. Guests run on the thread of their
//! request. The schedulers share no queue, so a request rarely wakes another processor, and its
//! memory stays in the caches of one.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cofferdam_runtime::{number_thread, tune};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The schedulers among which connections are distributed.
#[derive(Clone)]
pub(crate) struct Workers(Arc<[Worker]>);

struct Worker {
    scheduler: Handle,
    /// Tasks that run on it: connections, and the requests of HTTP/2 connections.
    tasks: AtomicUsize,
}

impl Workers {
    /// Starts this many threads. They end when the guard is dropped, which does not wait for them:
    /// one may hang with the disk.
    ///
    /// # Errors
    ///
    /// A thread or its scheduler cannot be created.
    pub(crate) fn start(threads: usize) -> io::Result<(Self, DropGuard)> {
        let stop = CancellationToken::new();
        let running = stop.clone().drop_guard();
        let mut workers = Vec::new();
        for number in 0..threads {
            let mut builder = Builder::new_current_thread();
            let runtime = tune(builder.enable_all()).build()?;
            workers.push(Worker { scheduler: runtime.handle().clone(), tasks: AtomicUsize::new(0) });
            let stop = stop.clone();
            thread::Builder::new().name("cofferdam".to_owned()).spawn(move || {
                number_thread(number);
                runtime.block_on(stop.cancelled());
                runtime.shutdown_background();
            })?;
        }
        Ok((Self(workers.into()), running))
    }

    /// The scheduler of the current thread alone.
    pub(crate) fn current() -> Self {
        Self(Arc::new([Worker { scheduler: Handle::current(), tasks: AtomicUsize::new(0) }]))
    }

    /// Waits until each thread has run a task.
    pub(crate) async fn run_a_task_each(&self) {
        let tasks: Vec<_> = self.0.iter().map(|worker| worker.scheduler.spawn(async {})).collect();
        for task in tasks {
            // It ends with an error only when its thread has been stopped.
            drop(task.await);
        }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::Workers;

    #[test]
    fn a_task_goes_to_the_thread_with_the_fewest_and_the_threads_end_with_their_owner() {
        let (workers, threads) = Workers::start(2).unwrap();
        let tasks = TaskTracker::new();
        let (sender, seen) = mpsc::sync_channel(4);
        let start = |sender: &mpsc::SyncSender<_>| {
            let (end, ended) = oneshot::channel::<()>();
            let sender = sender.clone();
            let task = async move {
                sender.send(thread::current().id()).unwrap();
                drop(ended.await);
                sender.send(thread::current().id()).unwrap();
            };
            workers.spawn(&tasks, task);
            (end, seen.recv().unwrap())
        };
        let ((end, first), (_second_runs, second)) = (start(&sender), start(&sender));
        assert_ne!(first, second);
        drop(end);
        assert_eq!(seen.recv().unwrap(), first, "a task stays on its thread");
        let again = loop {
            // The count is reduced just after the task's last line.
            if workers.0.iter().any(|worker| worker.tasks.load(std::sync::atomic::Ordering::Relaxed) == 0) {
                break start(&sender);
            }
            thread::yield_now();
        };
        assert_eq!(again.1, first);
        drop((threads, sender));
        assert!(seen.recv().is_err(), "tasks are dropped and not run to their end");
    }
}
