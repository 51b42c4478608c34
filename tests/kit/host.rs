//! The program under test: one process with its own data directory and free ports.

use super::database;
use super::memory_group::MemoryGroup;
use super::program::Place;
pub use super::program::{program, program_at};
use super::site::Issued;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a line of the log may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a debug build may take to compile all plugins on a busy machine.
const COMPILE_PATIENCE: Duration = Duration::from_secs(300);

/// The options for starting a host.
pub struct Setup {
    directory: Arc<TempDir>,
    data: String,
    config: String,
    plugins: Option<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    listen: String,
    admin: String,
    place: Place,
    /// The key printed by an earlier start, if there was one.
    key: String,
    root: Option<String>,
}

/// A running host. Dropping it ends the process and checks its log for panics.
pub struct Host {
    child: Child,
    log: Arc<Log>,
    log_reader: Option<JoinHandle<()>>,
    stdout: Option<BufReader<ChildStdout>>,
    directory: Arc<TempDir>,
    data: String,
    place: Place,
    expects_canary: bool,
    pub spawned: Instant,
    pub key: String,
    /// `http://127.0.0.1:PORT/v1`, with TLS `https://`
    pub base: String,
    /// `http://127.0.0.1:PORT` of the admin listener.
    pub admin: String,
    /// The JSON line printed at the start.
    pub banner: Value,
    /// The root that clients trust, if the host speaks TLS.
    pub root: Option<String>,
}

impl Setup {
    /// A host with an empty directory and without a configuration.
    pub fn new() -> Self {
        Self {
            directory: Arc::new(tempfile::tempdir().unwrap()),
            data: "data".to_owned(),
            config: String::new(),
            plugins: None,
            environment: Vec::new(),
            arguments: Vec::new(),
            listen: "127.0.0.1:0".to_owned(),
            admin: "127.0.0.1:0".to_owned(),
            place: Place::default(),
            key: String::new(),
            root: None,
        }
    }

    /// A host with the directory and configuration of one that has ended.
    pub fn after(host: &Host) -> Self {
        let config = std::fs::read_to_string(host.directory().join("cofferdam.toml")).unwrap_or_default();
        let (directory, data, key) = (Arc::clone(&host.directory), host.data.clone(), host.key.clone());
        let (root, place) = (host.root.clone(), host.place.clone());
        Self { directory, data, config, key, root, place, ..Self::new() }
    }

    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Both listeners speak TLS with this certificate.
    pub fn tls(mut self, issued: &Issued) -> Self {
        write_certificate(self.directory.path(), issued);
        self.root = Some(issued.root.clone());
        self.config("[server.tls]\ncertificate = \"tls.crt\"\nkey = \"tls.key\"")
    }

    /// The key that requests use, where an earlier command made it.
    pub fn key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Puts the data directory at another path below the test's directory.
    pub fn data_at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.data);
        self
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join(&self.data)
    }

    /// The directory with the configuration file.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a command with `--json` on a directory that no host serves yet.
    pub fn command_output(&self, arguments: &[&str]) -> Output {
        self.program().args(arguments).output().unwrap()
    }

    pub fn plugins(mut self, directory: &Path) -> Self {
        self.plugins = Some(directory.to_owned());
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A secret where none may be ends the host, see `cofferdam_store::canaries`.
    pub fn with_canaries(self) -> Self {
        self.environment("COFFERDAM_CANARIES", "1")
    }

    /// The same never, because in this test the guest or the client has the value from elsewhere.
    pub fn without_canaries(self) -> Self {
        self.environment("COFFERDAM_CANARIES", "")
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Listens at another address for clients.
    pub fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Listens at another address for operators.
    pub fn admin(mut self, address: &str) -> Self {
        address.clone_into(&mut self.admin);
        self
    }

    /// Runs the program and its commands in the user and mount namespaces of a process.
    pub fn in_namespaces(mut self, holder: u32) -> Self {
        self.place.namespaces = Some(holder);
        self
    }

    /// Runs another program, such as that of an earlier version.
    pub fn executable(mut self, executable: &Path) -> Self {
        executable.clone_into(&mut self.place.executable);
        self
    }

    /// Runs the program in a control group.
    pub fn in_group(mut self, group: &MemoryGroup) -> Self {
        self.place.group = Some(group.processes());
        self
    }

    /// Writes the configuration to its file, for commands that change the file.
    pub fn write_config(&self) {
        let config = database::configured(&self.config, self.directory.path());
        std::fs::write(self.directory.path().join("cofferdam.toml"), config).unwrap();
    }

    /// Reads the configuration file back after a command has changed it.
    pub fn reread_config(mut self) -> Self {
        self.config = std::fs::read_to_string(self.directory.path().join("cofferdam.toml")).unwrap();
        self
    }

    /// The program with the options of every command.
    fn program(&self) -> Command {
        let has_config = !self.config.is_empty() || database::is_wanted();
        if has_config {
            self.write_config();
        }
        let mut command = self.place.program();
        command.arg("--json").arg("--data").arg(self.data());
        if has_config {
            command.arg("--config").arg(self.directory.path().join("cofferdam.toml"));
        }
        command
    }

    /// The command that `start` runs.
    pub fn serve(&self) -> Command {
        let mut command = self.program();
        command.args(["serve", "--listen", &self.listen, "--admin", &self.admin]);
        if let Some(plugins) = &self.plugins {
            command.arg("--plugins").arg(plugins);
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Makes the store of a host in a database, or only a key if a test has made the store.
    fn first_key(&self) -> String {
        let run = |arguments: &[&str]| {
            let environment = self.environment.iter().map(|(name, value)| (name, value));
            self.program().args(arguments).envs(environment).output().unwrap()
        };
        let mut made = run(&["store", "create"]);
        if !made.status.success() {
            made = run(&["key", "create", "--workspace", "default"]);
        }
        let made: Value = serde_json::from_slice(&made.stdout)
            .unwrap_or_else(|_| panic!("no first key: {}", String::from_utf8_lossy(&made.stderr)));
        made["key"].as_str().unwrap().to_owned()
    }

    /// Runs to the end, for starts that must fail. A host that starts is killed after a while.
    pub fn fail(&self) -> Output {
        let child = self.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let (ended, has_ended) = sync_channel::<()>(0);
        let kill_if_it_runs = move || {
            if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                send_signal(pid, "KILL");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(kill_if_it_runs);
            let output = child.wait_with_output().unwrap();
            drop(ended);
            output
        })
    }

    /// Starts the host and waits for the line with the addresses.
    pub fn start(mut self) -> Host {
        if database::is_wanted() && self.key.is_empty() && !self.config.contains("postgres://") {
            self.key = self.first_key();
        }
        let spawned = Instant::now();
        let mut child = self.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, log_reader) = collect(child.stderr.take().unwrap());
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Ok(banner) = serde_json::from_str::<Value>(&line) else {
            let status = child.wait().unwrap();
            panic!("the host did not start ({status}): {line}\n{}", log.text.lock().unwrap());
        };
        let scheme = if banner["tls"] == true { "https" } else { "http" };
        Host {
            key: banner["key"].as_str().map_or(self.key, str::to_owned),
            base: format!("{scheme}://{}/v1", banner["listen"].as_str().unwrap()),
            admin: format!("{scheme}://{}", banner["admin"].as_str().unwrap()),
            root: self.root,
            banner,
            child,
            log,
            log_reader: Some(log_reader),
            stdout: Some(stdout),
            spawned,
            data: self.data,
            place: Place { group: None, ..self.place },
            expects_canary: false,
            directory: self.directory,
        }
    }
}

/// Sends a signal by name, such as `TERM`.
pub fn send_signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

#[derive(Default)]
struct Log {
    text: Mutex<String>,
    grown: Condvar,
    ended: AtomicBool,
}

/// Reads a pipe to its end on a thread.
fn collect(mut pipe: impl Read + Send + 'static) -> (Arc<Log>, JoinHandle<()>) {
    let log = Arc::new(Log::default());
    let sink = Arc::clone(&log);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            sink.text.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            sink.grown.notify_all();
        }
        sink.ended.store(true, Ordering::Release);
        // Taken once, so that a thread between its check and its wait does not miss the
        // notification.
        drop(sink.text.lock().unwrap());
        sink.grown.notify_all();
    });
    (log, reader)
}

impl Host {
    pub fn data(&self) -> PathBuf {
        self.directory.path().join(&self.data)
    }

    /// The directory with the configuration file.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn log(&self) -> String {
        self.log.text.lock().unwrap().clone()
    }

    /// Waits until the log contains this text.
    pub fn until_logged(&self, wanted: &str) {
        let text = self.log.text.lock().unwrap();
        let waited = self.log.grown.wait_timeout_while(text, PATIENCE, |text| !text.contains(wanted));
        let (text, timed_out) = waited.unwrap();
        // Copied, so that the lock is free and not poisoned when the assertion fails.
        let text = text.clone();
        assert!(!timed_out.timed_out(), "no {wanted} in:\n{text}");
    }

    /// Waits until every usable plugin is compiled. The compilation in the background takes memory
    /// and processor time.
    pub fn until_all_compiled(&self) {
        let until = Instant::now() + COMPILE_PATIENCE;
        loop {
            let listed = self.command(&["plugin", "list"]);
            let mut states =
                listed.as_array().unwrap().iter().map(|plugin| plugin["state"].as_str().unwrap());
            if states.all(|state| state.starts_with("compiled") || state == "not granted") {
                return;
            }
            assert!(Instant::now() < until, "{listed}");
        }
    }

    /// A secret is where none may be, as this test has arranged.
    pub fn expect_canary(&mut self) {
        self.expects_canary = true;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs another command on the same data directory; returns its JSON output.
    pub fn command(&self, arguments: &[&str]) -> Value {
        let output = self.command_output(arguments);
        assert!(
            output.status.success(),
            "{arguments:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn command_output(&self, arguments: &[&str]) -> Output {
        self.command_to_run(arguments).output().unwrap()
    }

    /// Another command on the same data directory.
    pub fn command_to_run(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.program();
        command.arg("--json").arg("--data").arg(self.data());
        let config = self.directory.path().join("cofferdam.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        command.args(arguments);
        command
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }

    /// Waits for the process to end; the log is complete then.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.wait_within(PATIENCE)
    }

    /// The same for a process that may take longer than others.
    pub fn wait_within(&mut self, patience: Duration) -> std::process::ExitStatus {
        let text = self.log.text.lock().unwrap();
        let ended = |_: &mut String| !self.log.ended.load(Ordering::Acquire);
        let (text, waited) = self.log.grown.wait_timeout_while(text, patience, ended).unwrap();
        drop(text);
        assert!(!waited.timed_out(), "the host does not end");
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.log_reader.take() {
            reader.join().unwrap();
        }
        status
    }

    /// Ends the host with SIGTERM; returns its log.
    pub fn end(&mut self) -> String {
        self.signal("TERM");
        self.wait();
        self.log()
    }

    /// Ends the host with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the host if it still runs, and starts another one on its directory.
    pub fn restart(mut self) -> Host {
        if let Ok(None) = self.child.try_wait() {
            self.signal("TERM");
            self.wait();
        }
        Setup::after(&self).start()
    }

    /// The files below the host's directory that contain `text`.
    pub fn files_with(&self, text: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list_files(self.directory(), &mut files);
        files.retain(|file| std::fs::read(file).unwrap().windows(text.len()).any(|it| it == text.as_bytes()));
        files
    }

    /// Everything the host printed to standard output after its first line.
    pub fn rest_of_stdout(&mut self) -> String {
        let mut rest = String::new();
        if let Some(mut stdout) = self.stdout.take() {
            stdout.read_to_string(&mut rest).unwrap();
        }
        rest
    }
}

/// Writes the files that [`Setup::tls`] configures, each whole: `tls.crt`, then `tls.key`.
pub fn write_certificate(directory: &Path, issued: &Issued) {
    for (name, text) in [("tls.crt", &issued.certificate), ("tls.key", &issued.key)] {
        let new = directory.join(format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, directory.join(name)).unwrap();
    }
}

/// Adds all files below a folder to `files`.
pub fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            list_files(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
        let log = self.log();
        if !std::thread::panicking() {
            assert!(!log.contains("panicked at"), "the host panicked:\n{log}");
            assert!(
                self.expects_canary || !log.contains("canary: "),
                "a secret is where none may be:\n{log}"
            );
        } else {
            eprintln!("--- log of the host\n{log}");
        }
    }
}
