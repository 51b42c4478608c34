//! Metrics of the process itself, under the names that Prometheus clients use.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::metrics::{Text, decimal};

pub(super) fn write(text: &mut Text) {
    if let Some(bytes) = resident_bytes() {
        text.single("process_resident_memory_bytes", "gauge", "Memory of the process in RAM", bytes);
    }
    if let Some(files) = open_files() {
        text.single("process_open_fds", "gauge", "Open files and connections", files);
    }
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u64::try_from(spent.tv_sec).unwrap_or_default().saturating_mul(1_000_000_000)
        + u64::try_from(spent.tv_nsec).unwrap_or_default();
    let help = "Processor time of the process, in the system and outside of it";
    text.single("process_cpu_seconds_total", "counter", help, decimal(nanos, 1_000_000_000));
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn open_files() -> Option<u64> {
    // Linux 6.2 and later give the number as the size of the directory.
    let counted = fs::metadata("/proc/self/fd").ok()?.len();
    if counted > 0 {
        return Some(counted);
    }
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    // Without the descriptor of the directory that was just read.
    u64::try_from(entries).ok()?.checked_sub(1)
}
