//! The account of one instance: processor time, waiting for turns, and violations of limits. Shared
//! by the epoch callback and the future that drives the guest.
//!
//! Time is charged while the guest's future is polled, so waiting for the network is free. Until
//! its first tick, a call is measured by the wall clock, which is cheap and accurate for nearly
//! every call, with at most 10 ms for a slice. From then on it is measured by the thread's CPU
//! clock, so that guests are not ended because the machine is busy with other work.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::UpdateDeadline;

use crate::fairness::ToolQueuePlace;
use crate::schedule::PerThread;

/// Upper limit of the time that is charged for a slice measured by the wall clock.
const FIRST_SLICE_MAX: Duration = Duration::from_millis(10);

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallBudget {
    pub(crate) cpu: Duration,
    /// Wall-clock time, including waiting.
    pub(crate) wall: Duration,
}

/// The limit that ended a call or caused a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallCut {
    /// Processor time or wall-clock time.
    Time,
    /// Wall-clock time, while other guests had the processors.
    Turn,
    /// Memory or tables, beyond the limit of the instance.
    Memory,
    /// Memory or tables, beyond what all guests may take together.
    SharedMemory,
    HostCalls,
}

/// Limits how many long-running guests each thread interleaves, so that guests which use all
/// processors do not delay other tasks.
///
/// The queue of a thread's scheduler holds at most one guest that runs longer than a tick. The others
/// wait for a turn outside of that queue, from which timers and sockets are served too. A call that
/// ends within its first tick, as nearly all do, needs no turn.
pub(crate) struct Turns(PerThread<Arc<Semaphore>>);

impl Turns {
    pub(crate) fn new(threads: usize) -> Self {
        Self(PerThread::new(threads, || Arc::new(Semaphore::new(1))))
    }
}

/// The account of one instance. Only one thread at a time uses it; atomics and mutexes are needed
/// for `Sync` and never contended.
pub(crate) struct InstanceAccount {
    turns: Arc<Turns>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    /// The owner's queue that a tool call waits in. The call gives up its turn while it waits for
    /// something other than the processor.
    queue_place: Option<Arc<ToolQueuePlace>>,
    /// The guest was interrupted at a tick and continues when it gets a turn.
    interrupted: AtomicBool,
    poll: Mutex<PollStart>,
    call_limit_ns: AtomicU64,
    call_spent_ns: AtomicU64,
    total_limit_ns: u64,
    total_spent_ns: AtomicU64,
    long: AtomicBool,
    out_of_time: AtomicBool,
    turn_denied: AtomicBool,
    memory_denied: AtomicBool,
    shared_memory_denied: AtomicBool,
    out_of_host_calls: AtomicBool,
}

/// The start of the current poll.
#[derive(Clone, Copy)]
struct PollStart {
    wall: Instant,
    /// The thread's CPU time. Read only for calls that ran longer than a tick.
    cpu: Option<Duration>,
    /// Time that the host worked for the guest during this poll. It is not charged.
    beside: Duration,
}

impl InstanceAccount {
    /// An account for an instance whose calls together may take `total` of processor time.
    pub(crate) fn new(turns: Arc<Turns>, total: Duration, queue_place: Option<Arc<ToolQueuePlace>>) -> Self {
        Self {
            turns,
            turn: Mutex::new(None),
            queue_place,
            interrupted: AtomicBool::new(false),
            poll: Mutex::new(PollStart { wall: Instant::now(), cpu: None, beside: Duration::ZERO }),
            call_limit_ns: AtomicU64::new(0),
            call_spent_ns: AtomicU64::new(0),
            total_limit_ns: nanoseconds(total),
            total_spent_ns: AtomicU64::new(0),
            long: AtomicBool::new(false),
            out_of_time: AtomicBool::new(false),
            turn_denied: AtomicBool::new(false),
            memory_denied: AtomicBool::new(false),
            shared_memory_denied: AtomicBool::new(false),
            out_of_host_calls: AtomicBool::new(false),
        }
    }

    /// Drives one call within its budget. `None` if the wall-clock limit was reached.
    ///
    /// The caller pins `call`: an asynchronous function that pins its argument keeps it in memory twice.
    pub(crate) async fn drive<T>(
        &self,
        budget: CallBudget,
        mut call: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        self.call_limit_ns.store(nanoseconds(budget.cpu), Ordering::Relaxed);
        self.call_spent_ns.store(0, Ordering::Relaxed);
        self.long.store(false, Ordering::Relaxed);
        let mut charged = pin!(async {
            self.enter_tool_queue().await;
            let charged = poll_fn(|context| {
                self.enter();
                let polled = Pin::new(&mut call).poll(context);
                self.leave();
                if polled.is_pending() {
                    self.step_aside();
                }
                polled
            });
            charged.await
        });
        // Most calls end in the first poll and need no timer. A first poll without an answer has
        // taken a tick at most.
        let at_once = poll_fn(|context| Poll::Ready(charged.as_mut().poll(context))).await;
        let answer = match at_once {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => tokio::time::timeout(budget.wall, charged).await.ok(),
        };
        if answer.is_none() {
            // A guest that waits for a turn does not choose for how long.
            let cut = if self.is_interrupted() { &self.turn_denied } else { &self.out_of_time };
            cut.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Drives host work that a guest waits for and is not charged for: answering a guest's question
    /// may run other guests within its own poll.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let uncharged = poll_fn(|context| {
            let started = self.now();
            let polled = work.as_mut().poll(context);
            let spent = self.now().saturating_sub(started);
            lock(&self.poll).beside += spent;
            polled
        });
        uncharged.await
    }

    /// Called at each tick of the epoch. Ends a guest whose budget is spent; any other guest yields
    /// and queues for its next turn.
    pub(crate) fn tick(self: &Arc<Self>) -> UpdateDeadline {
        let slice = nanoseconds(self.slice());
        let call_spent = self.call_spent_ns.load(Ordering::Relaxed).saturating_add(slice);
        let total_spent = self.total_spent_ns.load(Ordering::Relaxed).saturating_add(slice);
        if call_spent >= self.call_limit_ns.load(Ordering::Relaxed) || total_spent >= self.total_limit_ns {
            self.out_of_time.store(true, Ordering::Relaxed);
            return UpdateDeadline::Interrupt;
        }
        self.long.store(true, Ordering::Relaxed);
        self.interrupted.store(true, Ordering::Relaxed);
        UpdateDeadline::YieldCustom(1, Box::pin(wait_for_turn(Arc::clone(self))))
    }

    /// Resets the total for the next use of the instance. Violations of limits are not reset: an
    /// instance with one has no next use.
    pub(crate) fn renew(&self) {
        self.total_spent_ns.store(0, Ordering::Relaxed);
    }

    /// The most time that the call that just ended could take, in nanoseconds.
    pub(crate) fn limit_ns(&self) -> u64 {
        self.call_limit_ns.load(Ordering::Relaxed)
    }

    /// Time charged to the call that just ended, in nanoseconds.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.call_spent_ns.load(Ordering::Relaxed)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Records that memory or table space was refused.
    pub(crate) fn deny_memory(&self) {
        self.memory_denied.store(true, Ordering::Relaxed);
    }

    /// Records that memory or table space was refused because other guests hold it.
    pub(crate) fn deny_shared_memory(&self) {
        self.shared_memory_denied.store(true, Ordering::Relaxed);
    }

    /// Records that the budget of host calls is spent.
    pub(crate) fn deny_host_call(&self) {
        self.out_of_host_calls.store(true, Ordering::Relaxed);
    }

    /// The violated limit that explains a trap, if any.
    pub(crate) fn cut(&self) -> Option<CallCut> {
        if self.out_of_time.load(Ordering::Relaxed) {
            Some(CallCut::Time)
        } else if self.turn_denied.load(Ordering::Relaxed) {
            Some(CallCut::Turn)
        } else if self.out_of_host_calls.load(Ordering::Relaxed) {
            Some(CallCut::HostCalls)
        } else if self.memory_denied.load(Ordering::Relaxed) {
            Some(CallCut::Memory)
        } else if self.shared_memory_denied.load(Ordering::Relaxed) {
            Some(CallCut::SharedMemory)
        } else {
            None
        }
    }

    fn enter(&self) {
        let cpu = self.long.load(Ordering::Relaxed).then(thread_cpu_time);
        *lock(&self.poll) = PollStart { wall: Instant::now(), cpu, beside: Duration::ZERO };
    }

    fn leave(&self) {
        let slice = nanoseconds(self.slice());
        self.call_spent_ns.fetch_add(slice, Ordering::Relaxed);
        self.total_spent_ns.fetch_add(slice, Ordering::Relaxed);
        // A guest that waits gives its turn back.
        drop(lock(&self.turn).take());
    }

    /// Waits until the other tool calls of the same owner leave this one a turn.
    async fn enter_tool_queue(&self) {
        if let Some(queue_place) = &self.queue_place {
            queue_place.enter().await;
        }
    }

    /// Gives the owner's turn to its next tool call if the guest waits for a host or a model. A
    /// guest that was only interrupted keeps it.
    fn step_aside(&self) {
        if let Some(queue_place) = &self.queue_place
            && !self.is_interrupted()
        {
            queue_place.leave();
        }
    }

    /// Time charged since the current poll began.
    fn slice(&self) -> Duration {
        let spent = self.now();
        let poll = *lock(&self.poll);
        match poll.cpu {
            Some(start) => spent.saturating_sub(start).saturating_sub(poll.beside),
            None => spent.saturating_sub(poll.beside).min(FIRST_SLICE_MAX),
        }
    }

    /// The current reading of the clock that measures this poll: wall time since its start, or CPU
    /// time of the thread.
    fn now(&self) -> Duration {
        let poll = *lock(&self.poll);
        if poll.cpu.is_some() { thread_cpu_time() } else { poll.wall.elapsed() }
    }
}

/// Waits for a turn between two slices of a guest, then yields once.
///
/// The order matters. A long-running guest requests its next turn while it still holds the last
/// one, so it queues behind all others that wait. If it requested the turn after yielding, the turn
/// would be free each time, and a hundred spinning guests would delay every other task by a hundred
/// slices. Without the yield, timers and sockets would not be polled between two slices.
async fn wait_for_turn(account: Arc<InstanceAccount>) {
    account.enter_tool_queue().await;
    // The semaphore is never closed. If it were, running without a turn is safer than never
    // running.
    let turn = Arc::clone(account.turns.0.here()).acquire_owned().await.ok();
    tokio::task::yield_now().await;
    *lock(&account.turn) = turn;
    account.interrupted.store(false, Ordering::Relaxed);
}

fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::fairness::ToolQueues;
    use crate::owner::Owner;

    const LONG: Duration = Duration::from_secs(3600);

    fn account(total: Duration) -> Arc<InstanceAccount> {
        Arc::new(InstanceAccount::new(Arc::new(Turns::new(1)), total, None))
    }

    fn burn(time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    async fn first_tick(account: &Arc<InstanceAccount>, cpu: Duration) -> UpdateDeadline {
        let ticked = async { account.tick() };
        account.drive(CallBudget { cpu, wall: LONG }, pin!(ticked)).await.unwrap()
    }

    #[tokio::test]
    async fn a_guest_inside_its_budget_yields() {
        let account = account(LONG);
        assert!(matches!(first_tick(&account, LONG).await, UpdateDeadline::YieldCustom(1, _)));
        assert_eq!(account.cut(), None);
    }

    #[tokio::test]
    async fn the_budget_of_a_call_and_of_all_calls_end_it() {
        for (cpu, total) in [(Duration::ZERO, LONG), (LONG, Duration::ZERO)] {
            let account = account(total);
            assert!(matches!(first_tick(&account, cpu).await, UpdateDeadline::Interrupt));
            assert_eq!(account.cut(), Some(CallCut::Time));
        }
    }

    #[tokio::test]
    async fn waiting_past_the_wall_time_ends_a_call() {
        let account = account(LONG);
        let budget = CallBudget { cpu: LONG, wall: Duration::ZERO };
        assert_eq!(account.drive(budget, std::future::pending::<()>()).await, None);
        assert_eq!(account.cut(), Some(CallCut::Time));
    }

    #[tokio::test]
    async fn a_call_that_gets_no_turn_is_not_blamed_on_the_guest() {
        let account = account(LONG);
        let taken = Arc::clone(account.turns.0.here()).acquire_owned().await;
        let call = async {
            account.tick();
            wait_for_turn(Arc::clone(&account)).await;
        };
        assert_eq!(account.drive(CallBudget { cpu: LONG, wall: Duration::ZERO }, pin!(call)).await, None);
        assert_eq!(account.cut(), Some(CallCut::Turn));
        drop(taken);
    }

    #[tokio::test]
    async fn turns_are_released() {
        let account = account(LONG);
        let free = || account.turns.0.here().available_permits();
        wait_for_turn(Arc::clone(&account)).await;
        assert_eq!(free(), 0);
        account.leave();
        assert_eq!(free(), 1);
    }

    #[tokio::test]
    async fn a_tool_call_keeps_its_turn_when_interrupted_but_not_while_waiting() {
        let (queues, owner) = (Arc::new(ToolQueues::default()), Owner::new("key"));
        let queue_place = || Some(Arc::new(queues.join(&owner, 1)));
        let account =
            |queue_place| Arc::new(InstanceAccount::new(Arc::new(Turns::new(1)), LONG, queue_place));
        let (one, other) = (account(queue_place()), account(queue_place()));
        let budget = CallBudget { cpu: LONG, wall: LONG };
        let is_next = || other.enter_tool_queue().now_or_never().inspect(|()| other.step_aside()).is_some();
        let call = async {
            assert!(!is_next(), "it runs");
            assert!(matches!(one.tick(), UpdateDeadline::YieldCustom(1, _)));
            tokio::task::yield_now().await;
            assert!(!is_next(), "it was interrupted");
            wait_for_turn(Arc::clone(&one)).await;
            // Stands for a wait for a host.
            tokio::task::yield_now().await;
            assert!(is_next(), "it waited");
        };
        one.drive(budget, pin!(call)).await.unwrap();
    }

    #[tokio::test]
    async fn work_of_the_host_is_not_charged() {
        let account = account(LONG);
        let busy = async { burn(Duration::from_millis(2)) };
        account.drive(CallBudget { cpu: LONG, wall: LONG }, pin!(account.beside(busy))).await.unwrap();
        assert!(lock(&account.poll).beside > Duration::ZERO);
        assert!(account.slice() < account.now());
    }
}
