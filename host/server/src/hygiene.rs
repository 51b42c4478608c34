//! What the process tells the rest of the machine about itself: no core files,
//! no debugger of the same user, and credentials do not stay in the environment.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Forbids core files and attaching to the process. To be called first.
///
/// # Errors
///
/// The system refuses one of the two; the host runs all the same and says so.
pub fn seal_process() -> std::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Allows as many open files as the system lets this process have. Returns how many.
///
/// # Errors
///
/// The system refuses; then what was allowed before still is.
pub(crate) fn raise_open_files() -> std::io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Reads a variable and removes it from the environment that child processes
/// would inherit. The kernel's copy of the initial environment stays; since the
/// process is not dumpable, only root can read that.
pub(crate) fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    #[expect(unsafe_code, reason = "called before there is a thread that uses the environment, see `serve`")]
    // SAFETY: the only other thread by now is the log's, which reads and writes no variable.
    unsafe {
        std::env::remove_var(name);
    }
    Some(value)
}
