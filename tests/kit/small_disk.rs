//! A small file system for a test: a tmpfs in user and mount namespaces of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file system. The namespaces and the mount last as long as the process that holds them.
pub struct SmallDisk {
    holder: Child,
    mounted_at: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system of this size over a directory. `None` where this machine does not permit
    /// that without privileges; the reason is printed.
    pub fn mount(directory: &Path, mib: u32) -> Option<Self> {
        fs::create_dir(directory).unwrap();
        let script =
            format!("mount -t tmpfs -o size={mib}m,mode=700 tmpfs \"$0\" && echo mounted && exec cat");
        // The process ends when its standard input is closed, even if the test is killed.
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line == "mounted\n" {
            return Some(Self { holder, mounted_at: directory.to_owned() });
        }
        eprintln!("SKIPPED: unshare and mount are not permitted here ({})", holder.wait().unwrap());
        None
    }

    /// The process whose namespaces have the file system.
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// A file of the file system, by its path for processes outside of the namespaces.
    pub fn path(&self, file: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder()));
        root.join(self.mounted_at.strip_prefix("/").unwrap()).join(file)
    }

    /// Writes a file until no byte is free.
    pub fn fill(&self, file: &str) {
        let mut filler = File::create(self.path(file)).unwrap();
        for size in [1 << 20, 4 << 10, 1] {
            let bytes = vec![1; size];
            let full = std::iter::repeat_with(|| filler.write_all(&bytes)).find_map(Result::err).unwrap();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
        }
    }

    pub fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().unwrap();
    }
}
