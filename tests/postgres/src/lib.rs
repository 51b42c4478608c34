//! A real PostgreSQL for tests: a [`Server`] of its own, a [`Pair`] of primary and synchronous standby, and a
//! [`Proxy`] that breaks connections at chosen messages.
//!
//! ```no_run
//! if !cofferdam_test_postgres::installed() {
//!     return Ok(());
//! }
//! let server = cofferdam_test_postgres::Server::shared()?;
//! let database = server.database("of_this_test")?;
//! println!("{}", database.url());
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! Tests that need PostgreSQL begin with [`installed`]. A server starts in a fifth of a second. Run as root, the tests
//! start it as the user `postgres`, who must be able to enter the folder for temporary files. Linux only.

mod certificate;
mod log;
mod options;
mod pair;
mod pooler;
mod process;
mod programs;
mod proxy;
mod search;
mod server;
mod session;
mod template;

pub use certificate::Certificate;
pub use options::Options;
pub use pair::Pair;
pub use pooler::Pooler;
pub use proxy::{Fault, Place, Proxy, Rule, Tally};
pub use search::files_containing;
pub use server::{Database, Server};
pub use session::Rows;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The kit's errors are for people who read the output of tests.
type Result<T, E = anyhow::Error> = std::result::Result<T, E>;

/// The longest wait for something that is about to happen. Busy machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether tests with PostgreSQL can run. Where it is not installed this prints SKIPPED and is false, unless the
/// environment has `COFFERDAM_POSTGRES=required`: then it is true, so that the test fails at the start of its server.
pub fn installed() -> bool {
    let Err(error) = programs::Programs::find() else { return true };
    let is_required = std::env::var_os("COFFERDAM_POSTGRES").is_some_and(|value| value == "required");
    if !is_required {
        eprintln!("SKIPPED: {error:#}");
    }
    is_required
}

/// What a mutex guards here stays whole when its holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
