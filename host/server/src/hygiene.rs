//! Protects the secrets of the process on its machine: no core files, no debugger of the same user,
//! no credentials in the environment.

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

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

/// Makes the kernel kill this process when its parent ends, even if the parent is killed.
///
/// # Errors
///
/// The system refuses, or the parent has ended already.
pub(crate) fn end_with(parent: u32) -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there = getppid().map(Pid::as_raw_nonzero).is_some_and(|pid| pid.get().unsigned_abs() == parent);
    if is_there { Ok(()) } else { Err(std::io::Error::other(format!("process {parent} is not the parent"))) }
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
