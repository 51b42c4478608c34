//! What one instance has spent: processor time, waiting turns, faults noticed on
//! the way. The epoch callback and the future that drives the guest share it.
//!
//! Time is charged while the guest's future is being polled, so a guest that
//! waits for the network is not charged. The first slice of a call is measured
//! by the wall clock, which is cheap and right for nearly every call; a call
//! that outlives a tick is measured by the thread's processor clock from then
//! on, so that a machine busy with other work does not kill innocent guests.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll as Polled;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::UpdateDeadline;

use crate::fairness::InLine;

/// Most of a first slice that is believed to be the guest's own.
const FIRST_SLICE_MAX: Duration = Duration::from_millis(10);

/// What one call may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Processor time.
    pub(crate) cpu: Duration,
    /// Time by the clock on the wall, waiting included.
    pub(crate) wall: Duration,
}

/// Why the host cut a call short or a trap happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Processor time or wall time.
    Time,
    /// Memory or tables.
    Memory,
    /// Calls of the host.
    HostCalls,
}

/// Who may run, so that guests that burn all processors hold up nobody else.
///
/// At most as many guests stand in the scheduler's queue as there are
/// processors, and as many again whose call has only begun: short calls, which
/// are nearly all, do not wait behind long ones. Everybody else waits in line
/// for a turn, outside the queue that timers and sockets are served from.
pub(crate) struct Turns {
    first: Arc<Semaphore>,
    later: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(processors: usize) -> Self {
        Self { first: Arc::new(Semaphore::new(processors)), later: Arc::new(Semaphore::new(processors)) }
    }
}

/// The account of one instance. One thread at a time uses it; atomics and the
/// mutex are for the compiler, never contended.
pub(crate) struct Account {
    turns: Arc<Turns>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    /// The line of a tool call, which it leaves while it waits for something else than the processor.
    line: Option<Arc<InLine>>,
    /// The guest was interrupted and goes on as soon as it may.
    interrupted: AtomicBool,
    poll: Mutex<Poll>,
    call_limit_ns: AtomicU64,
    call_spent_ns: AtomicU64,
    total_limit_ns: u64,
    total_spent_ns: AtomicU64,
    long: AtomicBool,
    out_of_time: AtomicBool,
    memory_denied: AtomicBool,
    out_of_host_calls: AtomicBool,
}

/// When the current poll began.
#[derive(Clone, Copy)]
struct Poll {
    wall: Instant,
    /// Read only for calls that outlived a tick.
    cpu: Option<Duration>,
    /// What the host did meanwhile on the guest's behalf.
    beside: Duration,
}

impl Account {
    /// An account for one instance whose calls together may use `total`.
    pub(crate) fn new(turns: Arc<Turns>, total: Duration, line: Option<Arc<InLine>>) -> Self {
        Self {
            turns,
            turn: Mutex::new(None),
            line,
            interrupted: AtomicBool::new(false),
            poll: Mutex::new(Poll { wall: Instant::now(), cpu: None, beside: Duration::ZERO }),
            call_limit_ns: AtomicU64::new(0),
            call_spent_ns: AtomicU64::new(0),
            total_limit_ns: nanoseconds(total),
            total_spent_ns: AtomicU64::new(0),
            long: AtomicBool::new(false),
            out_of_time: AtomicBool::new(false),
            memory_denied: AtomicBool::new(false),
            out_of_host_calls: AtomicBool::new(false),
        }
    }

    /// Drives one call inside its budget. `None` means that the wall time passed.
    pub(crate) async fn drive<T>(&self, budget: Budget, call: impl Future<Output = T>) -> Option<T> {
        self.call_limit_ns.store(nanoseconds(budget.cpu), Ordering::Relaxed);
        self.call_spent_ns.store(0, Ordering::Relaxed);
        self.long.store(false, Ordering::Relaxed);
        let mut call = pin!(call);
        let mut charged = pin!(async {
            self.line_up().await;
            let turn = first_turn(&self.turns.first).await;
            *lock(&self.turn) = turn;
            let charged = poll_fn(|context| {
                self.enter();
                let polled = call.as_mut().poll(context);
                self.leave();
                if polled.is_pending() {
                    self.step_aside();
                }
                polled
            });
            charged.await
        });
        // Most calls are over at once and need no alarm; a first turn that ends without the answer has taken a
        // tick at most.
        let at_once = poll_fn(|context| Polled::Ready(charged.as_mut().poll(context))).await;
        let answer = match at_once {
            Polled::Ready(answer) => Some(answer),
            Polled::Pending => tokio::time::timeout(budget.wall, charged).await.ok(),
        };
        if answer.is_none() {
            self.out_of_time.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Drives work of the host that a guest waits for and is not charged with:
    /// answering a guest's question may run other guests inside its own poll.
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

    /// What the epoch callback does at each tick: out of budget ends the guest,
    /// otherwise it goes to the back of the queue.
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

    /// Gives the next use of the instance the total anew. What was noticed of an
    /// earlier one is not forgotten: such an instance has no next use.
    pub(crate) fn renew(&self) {
        self.total_spent_ns.store(0, Ordering::Relaxed);
    }

    /// Time charged to the call that just ended, in nanoseconds.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.call_spent_ns.load(Ordering::Relaxed)
    }

    /// Notes that memory or table space was refused.
    pub(crate) fn deny_memory(&self) {
        self.memory_denied.store(true, Ordering::Relaxed);
    }

    /// Notes that the budget of host calls is spent.
    pub(crate) fn deny_host_call(&self) {
        self.out_of_host_calls.store(true, Ordering::Relaxed);
    }

    /// What the host did that explains a trap, if anything.
    pub(crate) fn cut(&self) -> Option<Cut> {
        if self.out_of_time.load(Ordering::Relaxed) {
            Some(Cut::Time)
        } else if self.out_of_host_calls.load(Ordering::Relaxed) {
            Some(Cut::HostCalls)
        } else if self.memory_denied.load(Ordering::Relaxed) {
            Some(Cut::Memory)
        } else {
            None
        }
    }

    fn enter(&self) {
        let cpu = self.long.load(Ordering::Relaxed).then(thread_cpu_time);
        *lock(&self.poll) = Poll { wall: Instant::now(), cpu, beside: Duration::ZERO };
    }

    fn leave(&self) {
        let slice = nanoseconds(self.slice());
        self.call_spent_ns.fetch_add(slice, Ordering::Relaxed);
        self.total_spent_ns.fetch_add(slice, Ordering::Relaxed);
        // A turn is for the guest that runs; one that waits gives it back.
        drop(lock(&self.turn).take());
    }

    /// Waits until the other tool calls of the same owner leave this one a turn.
    async fn line_up(&self) {
        if let Some(line) = &self.line {
            line.enter().await;
        }
    }

    /// A guest that waits for a host or a model runs no more: the next tool call of its owner may.
    fn step_aside(&self) {
        if let Some(line) = &self.line
            && !self.interrupted.load(Ordering::Relaxed)
        {
            line.leave();
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

    /// The clock this poll is measured by: since its start, or of the thread.
    fn now(&self) -> Duration {
        let poll = *lock(&self.poll);
        if poll.cpu.is_some() { thread_cpu_time() } else { poll.wall.elapsed() }
    }
}

/// A turn to begin a call: at once, unless all processors are busy beginning calls.
async fn first_turn(turns: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    match Arc::clone(turns).try_acquire_owned() {
        Ok(turn) => Some(turn),
        Err(_) => next_turn(turns).await,
    }
}

/// Waits in line for a turn, then lets everything else run first.
///
/// The order matters. A long-running guest asks for its next turn while it still
/// holds the last one, so it queues behind all others that wait; asking after
/// the yield would find the turn free each time, and a hundred spinning guests
/// would make any other task wait a hundred slices. And without the yield, timers
/// and sockets would not be looked at between two slices.
async fn next_turn(turns: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    // The semaphore is never closed; if it were, running is the safe side.
    let turn = Arc::clone(turns).acquire_owned().await.ok();
    tokio::task::yield_now().await;
    turn
}

/// What a guest does between two slices.
async fn wait_for_turn(account: Arc<Account>) {
    account.line_up().await;
    let turn = next_turn(&account.turns.later).await;
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
    use crate::context::Owner;
    use crate::fairness::Lines;

    const LONG: Duration = Duration::from_secs(3600);

    fn account(total: Duration) -> Arc<Account> {
        Arc::new(Account::new(Arc::new(Turns::new(1)), total, None))
    }

    fn burn(time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    async fn first_tick(account: &Arc<Account>, cpu: Duration) -> UpdateDeadline {
        let ticked = async { account.tick() };
        account.drive(Budget { cpu, wall: LONG }, ticked).await.unwrap()
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
            assert_eq!(account.cut(), Some(Cut::Time));
        }
    }

    #[tokio::test]
    async fn waiting_past_the_wall_time_ends_a_call() {
        let account = account(LONG);
        let budget = Budget { cpu: LONG, wall: Duration::ZERO };
        assert_eq!(account.drive(budget, std::future::pending::<()>()).await, None);
        assert_eq!(account.cut(), Some(Cut::Time));
    }

    #[tokio::test]
    async fn turns_are_given_back() {
        let account = account(LONG);
        for _ in 0..3 {
            let call = account.drive(Budget { cpu: LONG, wall: LONG }, std::future::ready(()));
            assert_eq!(call.await, Some(()));
        }
        assert_eq!(account.turns.first.available_permits(), 1);
        wait_for_turn(Arc::clone(&account)).await;
        assert_eq!(account.turns.later.available_permits(), 0);
        account.leave();
        assert_eq!(account.turns.later.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_tool_call_keeps_its_turn_while_it_is_interrupted_and_not_while_it_waits() {
        let (lines, owner) = (Arc::new(Lines::default()), Owner::new("key"));
        let in_line = || Some(Arc::new(lines.join(&owner, 1)));
        let account = |line| Arc::new(Account::new(Arc::new(Turns::new(1)), LONG, line));
        let (one, other) = (account(in_line()), account(in_line()));
        let budget = Budget { cpu: LONG, wall: LONG };
        let is_next = || other.line_up().now_or_never().inspect(|()| other.step_aside()).is_some();
        let call = async {
            assert!(!is_next(), "it runs");
            assert!(matches!(one.tick(), UpdateDeadline::YieldCustom(1, _)));
            tokio::task::yield_now().await;
            assert!(!is_next(), "it was interrupted");
            wait_for_turn(Arc::clone(&one)).await;
            // For a host, say.
            tokio::task::yield_now().await;
            assert!(is_next(), "it waited");
        };
        one.drive(budget, call).await.unwrap();
    }

    #[tokio::test]
    async fn what_the_host_does_meanwhile_is_not_charged() {
        let account = account(LONG);
        let busy = async { burn(Duration::from_millis(2)) };
        account.drive(Budget { cpu: LONG, wall: LONG }, account.beside(busy)).await.unwrap();
        assert!(lock(&account.poll).beside > Duration::ZERO);
        assert!(account.slice() < account.now());
    }
}
