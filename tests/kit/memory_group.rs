//! A control group with a limit of memory, in which a test runs the program.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const MIB: u64 = 1 << 20;
/// Where version 1 and version 2 of control groups are mounted, and the files of each with the limit
/// and with the number of processes that the kernel has killed.
const VERSIONS: [[&str; 3]; 2] = [
    ["/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"],
    ["/sys/fs/cgroup", "memory.max", "memory.events"],
];

static MADE: AtomicU32 = AtomicU32::new(0);

/// The group. It is removed on drop, when its processes have ended.
pub struct MemoryGroup {
    directory: PathBuf,
    events: &'static str,
}

/// A process that holds memory of a group.
pub struct Ballast(Child);

impl MemoryGroup {
    /// Makes a group with this limit. `None` where this machine does not permit that; the reason is
    /// printed.
    pub fn make(mib: u64) -> Option<Self> {
        let mut reasons = Vec::new();
        for [mount, limit, events] in VERSIONS {
            match Self::below(Path::new(mount), limit, events, mib) {
                Ok(group) => return Some(group),
                Err(error) => reasons.push(format!("{mount}: {error}")),
            }
        }
        eprintln!("SKIPPED: no control group with a limit of memory: {}", reasons.join(", "));
        None
    }

    fn below(mount: &Path, limit: &str, events: &'static str, mib: u64) -> io::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let directory = mount.join(format!("cofferdam-test-{}-{number}", std::process::id()));
        fs::create_dir(&directory)?;
        let group = Self { directory, events };
        // Where the controller is not there, the file is not either.
        let mut file = fs::OpenOptions::new().write(true).open(group.directory.join(limit))?;
        file.write_all((mib * MIB).to_string().as_bytes())?;
        Ok(group)
    }

    /// The file that takes a process into the group.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// How many processes of the group the kernel has killed for their memory.
    pub fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(self.events)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().trim().parse().unwrap()
    }

    /// Starts a process that holds this much memory of the group until it is dropped.
    pub fn hold(&self, mib: u64) -> Ballast {
        // `dd` fills its buffer and then waits, because its output is not read.
        let mut dd = command(&self.processes(), "dd");
        dd.args(["if=/dev/zero", "iflag=fullblock", "count=1", "status=none", &format!("bs={mib}M")]);
        Ballast(dd.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }
}

/// A program that enters the group of this file before it begins.
pub fn command(processes: &Path, program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(processes).arg(program);
    command
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        fs::remove_dir(&self.directory).ok();
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
