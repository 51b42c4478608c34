//! Processes of this machine, as `/proc` shows them.

/// The state and the parent of a process.
fn state(pid: &str) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    // The name before the last bracket may have spaces.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Whether a process runs. One that has ended and is not reaped yet does not.
pub fn runs(pid: &str) -> bool {
    !pid.trim().is_empty() && state(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The ids of the children of a process that run.
pub fn children(parent: u32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |pid: &String| {
        pid.bytes().all(|byte| byte.is_ascii_digit())
            && runs(pid)
            && state(pid).is_some_and(|(_, of)| of == parent.to_string())
    };
    names.filter(is_child).collect()
}

/// The soft and the hard limit of a process's core files.
pub fn core_limits(pid: u32) -> Vec<String> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    line.split_whitespace().take(2).map(str::to_owned).collect()
}
