//! Bounds of what tests wait for, and of tests.
//!
//! The test harness waits without end for a test that hangs, and prints only which other tests passed. So a test that
//! takes much too long ends the test program and is named. It is known from the moment it starts the program under test.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// How long a test waits for what another program is to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest tests take some minutes on a busy machine.
const LONGEST: Duration = Duration::from_secs(20 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// As for failed tests.
const FAILED: i32 = 101;

/// The tests that run, by their names, and since when.
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// The test of this thread, until the thread ends.
struct Running(Option<String>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            RUNNING.lock().unwrap().remove(name);
        }
    }
}

thread_local! {
    static HERE: Running = Running(begin());
}

/// Waits for this; `what` says in a few words what did not happen if it takes too long.
pub async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

/// Asks again and again until this is so; `what` says in a few words what is waited for.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let polls = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    within(what, polls).await;
}

/// The test of this thread has a deadline from now on, if it has none.
pub fn set() {
    HERE.with(|_| ());
}

/// The harness gives the thread of a test its name. Runs that repeat faults have no deadline.
fn begin() -> Option<String> {
    static WATCH: Once = Once::new();
    let name = std::thread::current().name().filter(|name| name.contains("::"))?.to_owned();
    if std::env::var_os("COFFERDAM_FAULTS").is_some() {
        return None;
    }
    WATCH.call_once(|| drop(std::thread::spawn(watch)));
    RUNNING.lock().unwrap().insert(name.clone(), Instant::now());
    Some(name)
}

fn watch() {
    loop {
        std::thread::park_timeout(LOOK_EVERY);
        let running = RUNNING.lock().unwrap();
        if running.values().all(|since| since.elapsed() < LONGEST) {
            continue;
        }
        // Not `eprintln!`, whose output belongs to the test that started the first program.
        let mut error = std::io::stderr();
        for (name, since) in running.iter() {
            writeln!(error, "test {name} has been running for {} s", since.elapsed().as_secs()).ok();
        }
        writeln!(error, "no test may run for longer than {} s: the test program ends", LONGEST.as_secs())
            .ok();
        std::process::exit(FAILED);
    }
}
