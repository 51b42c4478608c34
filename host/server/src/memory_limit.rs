//! The memory limit of the process: that of its control group (cgroups(7), version 1 or 2) and of
//! those above it, and how much is left until the nearest of them.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_runtime::memory;

/// The part of the limit below which memory is short: a quarter, at most [`RESERVE_MAX`]. What runs
/// already needs it to come to its end.
const PART_IN_RESERVE: u64 = 4;
const RESERVE_MAX: u64 = 256 * 1024 * 1024;
/// What is assumed where neither a limit nor the memory of the machine is known, in bytes.
const UNKNOWN_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// The part of the memory that all guests may take beyond 8 MiB each: a half.
const PART_OF_GUESTS: usize = 2;
/// The part of the memory that all answers which are being read may have beyond 256 KiB each. A long
/// answer takes about six times its length, a stream mostly at its end.
const PART_OF_ANSWERS: usize = 32;

/// The files of one version of control groups.
#[derive(Debug)]
struct FileNames {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with memory that the kernel takes back before it kills a process.
    reclaimable: &'static [&'static str],
}

static VERSION_1: FileNames = FileNames {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_active_file", "total_inactive_file"],
};
static VERSION_2: FileNames = FileNames {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: &["active_file", "inactive_file", "slab_reclaimable"],
};
/// Version 1 shows this or more where there is no limit.
const NO_LIMIT: u64 = 1 << 62;

/// The control groups that may limit the memory of this process.
pub(crate) struct MemoryLimit {
    groups: Vec<(PathBuf, &'static FileNames)>,
}

/// What the kernel says about the group of which least is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryReading {
    /// The limit, in bytes.
    pub(crate) limit: u64,
    /// What is left, in bytes.
    pub(crate) free: u64,
}

impl MemoryReading {
    /// What stays free for requests that run, in bytes.
    pub(crate) fn reserve(self) -> u64 {
        (self.limit / PART_IN_RESERVE).min(RESERVE_MAX)
    }

    /// Whether memory is short. It stays short until a quarter of the reserve more is free, so that
    /// it does not change all the time.
    pub(crate) fn is_short(self, was_short: bool) -> bool {
        let reserve = self.reserve();
        self.free < if was_short { reserve + reserve / 4 } else { reserve }
    }
}

impl MemoryLimit {
    /// Finds the groups of this process. There are none on systems other than Linux.
    pub(crate) fn find() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { groups: groups(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")) }
    }

    /// The memory that this process may take, in bytes: the nearest limit, else the memory of the
    /// machine.
    pub(crate) fn bytes(&self) -> usize {
        let machine = machine().map_or(UNKNOWN_BYTES, |machine| machine.limit);
        let limits = self.groups.iter().filter_map(|(group, files)| limit_of(group, files));
        usize::try_from(limits.fold(machine, u64::min)).unwrap_or(usize::MAX)
    }

    /// Bounds the memory of all guests, and that of all long answers.
    pub(crate) fn bound_shared(&self) {
        let bytes = self.bytes();
        memory::set_guests_max(bytes / PART_OF_GUESTS);
        memory::set_answers_max(bytes / PART_OF_ANSWERS);
    }

    /// Reads how much is left, without a limit that of the machine. `None` where the system does not
    /// say it.
    pub(crate) fn read_or_machine(&self) -> Option<MemoryReading> {
        self.read().or_else(machine)
    }

    /// Reads how much is left until the limit. `None` where there is no limit.
    pub(crate) fn read(&self) -> Option<MemoryReading> {
        self.groups.iter().filter_map(|(group, files)| reading(group, files)).min_by_key(|found| found.free)
    }
}

/// The directories of the groups of a process and of those above, from its `mountinfo` and `cgroup`
/// (proc(5)).
fn groups(mounts: &str, memberships: &str) -> Vec<(PathBuf, &'static FileNames)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let mut system = system.split(' ');
        let (kind, options) = (system.next().unwrap_or_default(), system.nth(1).unwrap_or_default());
        let Some((files, membership)) = membership(kind, options, memberships) else { continue };
        let mut mount = mount.split(' ').skip(3);
        let (Some(root), Some(point)) = (mount.next(), mount.next()) else { continue };
        // In a container the mount often shows the container's own group as its root, and the path
        // is one that the container does not see.
        let below = membership.and_then(|path| Path::new(path).strip_prefix(root).ok());
        let below = below.filter(|path| !path.starts_with("..")).unwrap_or_else(|| Path::new(""));
        // Joining an empty path appends a slash, and collecting the components removes it.
        let own: PathBuf = Path::new(point).join(below).components().collect();
        let upwards = own.ancestors().take_while(|group| group.starts_with(point));
        found.extend(upwards.map(|group| (group.to_owned(), files)));
    }
    found
}

/// The version of control groups of a mounted file system that can limit memory, and the path of this
/// process in it.
fn membership<'m>(
    kind: &str,
    options: &str,
    memberships: &'m str,
) -> Option<(&'static FileNames, Option<&'m str>)> {
    let has_memory = |list: &str| list.split(',').any(|name| name == "memory");
    let path_of_version_1 = |line: &'m str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        has_memory(controllers).then_some(path)
    };
    match kind {
        "cgroup" if has_memory(options) => {
            Some((&VERSION_1, memberships.lines().find_map(path_of_version_1)))
        }
        "cgroup2" => Some((&VERSION_2, memberships.lines().find_map(|line| line.strip_prefix("0::")))),
        _ => None,
    }
}

/// The limit of a group in bytes, `None` if it has none.
fn limit_of(group: &Path, files: &FileNames) -> Option<u64> {
    number(group, files.limit).filter(|limit| *limit < NO_LIMIT)
}

/// Pages of files count as used, and the kernel fills all memory with them, but it takes them back
/// before it kills a process. What is left over is memory of processes and of the kernel.
fn reading(group: &Path, files: &FileNames) -> Option<MemoryReading> {
    let limit = limit_of(group, files)?;
    let used = number(group, files.usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let of_files = lines.filter(|(name, _)| files.reclaimable.contains(name));
    let reclaimable: u64 = of_files.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum();
    Some(MemoryReading { limit, free: limit.saturating_sub(used.saturating_sub(reclaimable)) })
}

fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// The memory of the machine, and what its programs can still take. A unit of systemd with
/// `ProcSubset=pid` does not see it.
fn machine() -> Option<MemoryReading> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(MemoryReading { limit: bytes("MemTotal:")?, free: bytes("MemAvailable:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mounts: &str, memberships: &str) -> Vec<(String, &'static str)> {
        let groups = groups(mounts, memberships).into_iter();
        groups.map(|(group, files)| (group.display().to_string(), files.limit)).collect()
    }

    #[test]
    fn groups_are_found_from_the_own_one_upwards() {
        let mounts = "30 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:29 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
        let own = "5:cpu:/\n4:memory:/a/b\n0::/\n";
        let memory = "memory.limit_in_bytes";
        assert_eq!(
            found(mounts, own),
            [
                ("/sys/fs/cgroup/memory/a/b".to_owned(), memory),
                ("/sys/fs/cgroup/memory/a".to_owned(), memory),
                ("/sys/fs/cgroup/memory".to_owned(), memory)
            ]
        );
        let mounts = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(
            found(mounts, "0::/system.slice\n"),
            [
                ("/sys/fs/cgroup/system.slice".to_owned(), "memory.max"),
                ("/sys/fs/cgroup".to_owned(), "memory.max")
            ]
        );
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let mounts = "30 23 0:27 /docker/1f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let point = ("/sys/fs/cgroup/memory".to_owned(), "memory.limit_in_bytes");
        assert_eq!(found(mounts, "4:memory:/docker/1f\n"), std::slice::from_ref(&point));
        assert_eq!(found(mounts, "4:memory:/other\n"), std::slice::from_ref(&point));
        let mounts = "30 23 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(found(mounts, "0::/\n"), [("/sys/fs/cgroup".to_owned(), "memory.max")]);
        assert_eq!(found("", ""), []);
        assert_eq!(found("no mount\n30 23 - cgroup2\n", "0::/\n"), []);
    }

    #[test]
    fn pages_of_files_count_as_free() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(directory.path().join(file), text).unwrap();
        let read = |files| reading(directory.path(), files);
        assert_eq!(read(&VERSION_2), None);
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 300\nfile 400\nactive_file 250\ninactive_file 50\nslab_reclaimable 10\n");
        assert_eq!(read(&VERSION_2), Some(MemoryReading { limit: 1000, free: 410 }));
        write("memory.max", "max\n");
        assert_eq!(read(&VERSION_2), None);
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(read(&VERSION_1), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "1000\n");
        write("memory.stat", "inactive_file 9\ntotal_inactive_file 90\ntotal_active_file 10\n");
        assert_eq!(read(&VERSION_1), Some(MemoryReading { limit: 1000, free: 100 }));
    }

    #[test]
    fn memory_is_short_below_the_reserve_until_more_is_free() {
        let reading = |free| MemoryReading { limit: 400, free };
        assert_eq!(reading(0).reserve(), 100);
        assert!(!reading(100).is_short(false));
        assert!(reading(99).is_short(false));
        assert!(reading(124).is_short(true));
        assert!(!reading(125).is_short(true));
        assert_eq!(MemoryReading { limit: 1 << 40, free: 0 }.reserve(), RESERVE_MAX);
    }
}
