//! Protects the secrets of the process on its machine: no core files, no debugger of the same user,
//! no credentials in the environment.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Forbids core files, and attaching to the process. Must be the first call in `main`.
///
/// # Errors
///
/// The system refuses one of the two. The host then runs without this protection and logs a
/// warning.
pub fn seal_process() -> std::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Raises the limit of open files to the hard limit and returns it.
///
/// # Errors
///
/// The system refuses; then the previous limit stays.
pub(crate) fn raise_open_files() -> std::io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Reads a variable and removes it from the environment, so that child processes do not inherit it.
/// The kernel's copy of the initial environment stays; since the process is not dumpable, only root
/// can read it.
pub(crate) fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    #[expect(unsafe_code, reason = "called before there is a thread that uses the environment, see `serve`")]
    // SAFETY: the only other thread at this time is the log's writer, which does not access the
    // environment.
    unsafe {
        std::env::remove_var(name);
    }
    Some(value)
}
