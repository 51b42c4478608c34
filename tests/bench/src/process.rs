//! What `/proc` tells about a server: processor time, memory, descriptors.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The processes that a server consists of.
#[derive(Clone)]
pub(crate) struct Processes(Vec<u32>);

/// Nanoseconds that each thread has run.
pub(crate) struct ThreadTimes(BTreeMap<u32, u64>);

impl Processes {
    pub(crate) fn one(pid: u32) -> Self {
        Self(vec![pid])
    }

    /// The children of a process, such as nginx's workers.
    pub(crate) fn children_of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(Self(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()))
    }

    /// The processor time of all threads, from `schedstat`: `stat` counts in hundredths of a second, which is too
    /// coarse for a short burst.
    pub(crate) fn times(&self) -> anyhow::Result<ThreadTimes> {
        let mut times = BTreeMap::new();
        for pid in &self.0 {
            add_threads(*pid, &mut times)?;
        }
        Ok(ThreadTimes(times))
    }

    /// Nanoseconds of processor time since then.
    pub(crate) fn spent_since(&self, before: &ThreadTimes) -> anyhow::Result<u64> {
        Ok(self.times()?.since(before))
    }

    /// KiB in memory now.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// KiB in memory now, where a page that a process maps many times counts once: the images of the
    /// plugins' memories are such pages.
    pub(crate) fn without_repeated(&self) -> anyhow::Result<u64> {
        self.figure("smaps_rollup", "Pss:")
    }

    /// The most KiB in memory since [`Processes::forget_peak`].
    pub(crate) fn peak(&self) -> anyhow::Result<u64> {
        self.status("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        for path in self.0.iter().map(|pid| format!("/proc/{pid}/clear_refs")) {
            fs::write(&path, "5").with_context(|| format!("cannot write {path}"))?;
        }
        Ok(())
    }

    /// Open descriptors, but for files below `folder`.
    pub(crate) fn descriptors_outside(&self, folder: &Path) -> anyhow::Result<usize> {
        let mut sum = 0;
        for pid in &self.0 {
            for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
                // One that was closed meanwhile leads nowhere.
                sum += usize::from(
                    fs::read_link(descriptor?.path()).is_ok_and(|file| !file.starts_with(folder)),
                );
            }
        }
        Ok(sum)
    }

    fn status(&self, name: &str) -> anyhow::Result<u64> {
        self.figure("status", name)
    }

    /// The sum of a figure in a file of each process.
    fn figure(&self, file: &str, name: &str) -> anyhow::Result<u64> {
        let mut sum = 0;
        for pid in &self.0 {
            let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let figure = line.and_then(|line| line.split_whitespace().next());
            sum += figure.ok_or_else(|| anyhow!("no {name} of process {pid}"))?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl ThreadTimes {
    /// Of the processes that a process has now, which may come and go, as those of PostgreSQL do.
    pub(crate) fn of_children(pid: u32) -> anyhow::Result<Self> {
        let mut times = BTreeMap::new();
        for child in Processes::children_of(pid)?.0 {
            if let Err(error) = add_threads(child, &mut times)
                && Path::new(&format!("/proc/{child}")).exists()
            {
                return Err(error);
            }
        }
        Ok(Self(times))
    }

    /// Nanoseconds of processor time since then. The last part of a thread that ended meanwhile is missing.
    pub(crate) fn since(&self, before: &Self) -> u64 {
        let spent =
            self.0.iter().map(|(id, time)| time.saturating_sub(before.0.get(id).copied().unwrap_or(0)));
        spent.sum()
    }
}

fn add_threads(pid: u32, times: &mut BTreeMap<u32, u64>) -> anyhow::Result<()> {
    let folder = format!("/proc/{pid}/task");
    for task in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}: the server ended"))? {
        let task = task?;
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        let id = task.file_name().to_string_lossy().parse()?;
        times.insert(id, text.split(' ').next().unwrap_or_default().parse()?);
    }
    Ok(())
}

/// Processors of the machine.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Time of all processors of the machine since its start, in ticks: busy, and all.
pub(crate) fn machine_ticks() -> anyhow::Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // The fourth and fifth figure are idle time, without and with a read from a disk under way. Figures after the
    // eighth are contained in earlier ones.
    let all: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok([all - idle, all])
}

/// Allows this process and those it starts as many descriptors as the system permits; that number.
pub(crate) fn raise_descriptor_limit() -> anyhow::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of descriptors")?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// The path of a program with this name in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
