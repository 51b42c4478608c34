//! An `LD_PRELOAD` library for the program under test. It records file changes and bytes sent on
//! sockets, and makes syncs and writes slow, stuck or failing on demand. See `shim.c`.

use super::host::Setup;
use super::record::Record;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SOURCE: &str = include_str!("shim.c");

/// How long a step under the shim's control may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The compiled library. Needs `cc`, which exists wherever rustc can link.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (source, made) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"]).arg(&made).arg(&source);
        let output = compiler.args(["-ldl", "-lpthread"]).output().expect("the shim needs `cc`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Another test process may build it at the same time; the renamed files have the same
        // content.
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cofferdam-shim.so");
        std::fs::rename(&made, &library).unwrap();
        library
    })
}

/// The rules and the record of the processes that load the library.
pub struct Shim {
    folder: TempDir,
    root: PathBuf,
}

impl Shim {
    /// Watches the files below `root`, which may not exist yet.
    pub fn new(root: &Path) -> Self {
        let parent = root.parent().unwrap().canonicalize().unwrap();
        Self { folder: tempfile::tempdir().unwrap(), root: parent.join(root.file_name().unwrap()) }
    }

    /// The environment variables that load the library.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        [
            ("LD_PRELOAD", text(library())),
            ("COFFERDAM_SHIM", text(self.folder.path())),
            ("COFFERDAM_SHIM_ROOT", text(&self.root)),
        ]
    }

    /// A setup whose host loads the library.
    pub fn on(&self, setup: Setup) -> Setup {
        self.environment().iter().fold(setup, |setup, (name, value)| setup.environment(name, value))
    }

    /// Replaces all rules. They take effect with the next call of the program.
    pub fn rules(&self, rules: &[Rule]) {
        let mut text = String::new();
        for rule in rules {
            let (action, argument) = match rule.action {
                Action::Delay(by) => ("delay", by.as_millis() as u64),
                Action::Fail(error) => ("error", error as u64),
                Action::Freeze => ("freeze", 0),
                Action::Space(bytes) => ("space", bytes),
            };
            writeln!(text, "{} {} {action} {argument} {}", rule.call.name(), rule.path, rule.after).unwrap();
        }
        std::fs::remove_file(self.folder.path().join("frozen")).ok();
        self.replace("control", &text);
    }

    /// Shifts the program's date forward or back.
    pub fn shift_date(&self, by_seconds: i64) {
        self.replace("clock", &(by_seconds * 1000).to_string());
    }

    /// Waits until a call is stopped by [`Action::Freeze`].
    pub fn until_frozen(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.is_frozen() {
            assert!(Instant::now() < end, "nothing is stuck");
            std::thread::yield_now();
        }
    }

    /// Whether a call is stopped.
    pub fn is_frozen(&self) -> bool {
        self.folder.path().join("frozen").exists()
    }

    /// The record so far.
    pub fn record(&self) -> Record {
        Record::parse(&self.record_bytes(), &self.root)
    }

    /// The unparsed record. It contains everything written to files and sent on sockets.
    pub fn record_bytes(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("record")).unwrap_or_default()
    }

    fn replace(&self, name: &str, text: &str) {
        let new = self.folder.path().join(format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(new, self.folder.path().join(name)).unwrap();
    }
}

/// The calls that a rule applies to.
#[derive(Clone, Copy)]
pub enum Call {
    /// `fsync` and `fdatasync`.
    Sync,
    /// All calls that write to a file.
    Write,
    /// Opening a file that does not exist yet.
    Create,
}

impl Call {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Write => "write",
            Self::Create => "create",
        }
    }
}

#[derive(Clone, Copy)]
pub enum Action {
    /// The call takes this much longer.
    Delay(Duration),
    /// The call fails with this error number and does nothing.
    Fail(i32),
    /// The call blocks until the rules are replaced.
    Freeze,
    /// The call works for this many more bytes, then there is no space left.
    Space(u64),
}

/// What to do with calls on files whose path below the root contains `path` (`*` for all files),
/// after the first `after` calls.
#[derive(Clone, Copy)]
pub struct Rule {
    pub call: Call,
    pub path: &'static str,
    pub action: Action,
    pub after: u64,
}

impl Rule {
    pub fn new(call: Call, path: &'static str, action: Action) -> Self {
        Self { call, path, action, after: 0 }
    }
}

/// No space left on the device.
pub const ENOSPC: i32 = 28;
/// Input/output error.
pub const EIO: i32 = 5;
