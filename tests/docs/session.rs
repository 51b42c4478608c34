//! One shell in a fresh directory, for the blocks of a page that belong together.

use crate::kit::host::program;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

use super::expect::is_output;
use super::shell::Step;

/// How long a command may take: a build of a plugin compiles its dependencies on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often a server's output is looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// Stands before the status of a command.
const MARK: &str = "end-of-command-7c1f";

/// What `cofferdam` is within a session: `serve` gets free ports unless it is told which ones.
const WRAPPER: &str = r#"#!/usr/bin/env bash
[[ $# = 0 ]] && set -- serve
if [[ " $* " = *" serve "* ]]; then
  [[ "$*" = *--listen* ]] || set -- "$@" --listen 127.0.0.1:LISTEN
  [[ "$*" = *--admin* ]] || set -- "$@" --admin 127.0.0.1:ADMIN
fi
exec PROGRAM "$@"
"#;

/// A shell that runs, with the servers that it has started. All are ended when it is dropped.
pub(super) struct Session {
    directory: TempDir,
    shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
    servers: usize,
    /// The default ports as pages show them, each with the one that is used.
    ports: [(&'static str, String); 2],
}

impl Session {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [home, programs] = ["home", "programs"].map(|name| directory.path().join(name));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&programs).unwrap();
        let [listen, admin] = [free_port(), free_port()].map(|port| port.to_string());
        let command = program();
        let wrapper = WRAPPER.replace("LISTEN", &listen).replace("ADMIN", &admin);
        let wrapper = wrapper.replace("PROGRAM", &format!("'{}'", command.get_program().display()));
        let path = programs.join("cofferdam");
        std::fs::write(&path, wrapper).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();

        let mut bash = Command::new("bash");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", programs.display())).env("HOME", &home).current_dir(&home);
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut shell = bash.arg("--norc").spawn().unwrap();
        let output = lines(BufReader::new(shell.stdout.take().unwrap()));
        let input = shell.stdin.take().unwrap();
        let ports = [(":8080", format!(":{listen}")), (":8081", format!(":{admin}"))];
        let mut session = Self { directory, shell, input, output, servers: 0, ports };
        session.send("exec 2>&1").unwrap();
        session
    }

    /// Runs a command and compares what it prints. One that shows no output has to succeed.
    pub(super) fn run(&mut self, step: &Step) -> Result<(), String> {
        let mut command = step.command.clone();
        for (shown, used) in &self.ports {
            command = command.replace(shown, used);
        }
        match command.strip_suffix(" &") {
            Some(server) => self.serve(server, &step.expected),
            None => self.finish(&command, &step.expected),
        }
    }

    /// Runs a command to its end. It prints its result or, when it has none, what it says on standard error.
    fn finish(&mut self, command: &str, expected: &[String]) -> Result<(), String> {
        let errors = self.directory.path().join("errors");
        let (status, result) =
            self.send(&format!("{{\n{command}\n}} </dev/null 2>'{}'", errors.display()))?;
        let errors = self.as_shown(std::fs::read_to_string(errors).unwrap());
        let result = self.as_shown(result);
        let printed = if result.trim().is_empty() { &errors } else { &result };
        let is_good = match expected {
            [] => status == 0,
            expected => is_output(expected, &printed.trim_end().lines().collect::<Vec<_>>()),
        };
        if is_good { Ok(()) } else { Err(format!("status {status}, printed:\n{result}\n{errors}")) }
    }

    /// Starts a command in the background. It is ready when it has printed what is expected, or anything; one
    /// whose output goes elsewhere is not waited for.
    fn serve(&mut self, command: &str, expected: &[String]) -> Result<(), String> {
        self.servers += 1;
        let [out, log] = ["out", "log"].map(|kind| self.file(kind, self.servers));
        // As the shell's own for a moment, so that the command's own redirections win and `$!` is the command.
        let redirect = format!("exec 8>&1 >'{}' 2>'{}'", out.display(), log.display());
        self.send(&format!("{redirect}\n{command} &\nexec 1>&8 2>&8"))?;
        if expected.is_empty() && command.contains('>') {
            return Ok(());
        }
        let any = [vec!["...".to_owned()], expected.to_vec(), vec!["...".to_owned()]].concat();
        let until = Instant::now() + PATIENCE;
        loop {
            let printed = self.as_shown(std::fs::read_to_string(&out).unwrap());
            if !printed.is_empty() && is_output(&any, &printed.lines().collect::<Vec<_>>()) {
                return Ok(());
            }
            let (ended, _) = self.send("kill -0 $!")?;
            if ended != 0 {
                return Err(format!("it has ended, printed:\n{printed}"));
            }
            if Instant::now() > until {
                return Err(format!("not ready in time, printed:\n{printed}"));
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    /// Has the shell run this; status and output.
    fn send(&mut self, command: &str) -> Result<(i32, String), String> {
        let sent = writeln!(self.input, "{command}\nprintf '\\n{MARK} %s\\n' $?");
        sent.map_err(|error| format!("the shell has ended: {error}"))?;
        let (until, mut printed) = (Instant::now() + PATIENCE, String::new());
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(MARK) {
                    Some(status) => return Ok((status.trim().parse().unwrap(), printed)),
                    None => printed = printed + &line + "\n",
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("not done in time, printed:\n{printed}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the shell has ended, printed:\n{printed}"));
                }
            }
        }
    }

    /// With the ports that pages show.
    fn as_shown(&self, text: String) -> String {
        self.ports.iter().fold(text, |text, (shown, used)| text.replace(used, shown))
    }

    /// The directory that the shell begins in.
    pub(super) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// What the server that was started last has printed.
    pub(super) fn printed(&self) -> String {
        std::fs::read_to_string(self.file("out", self.servers)).unwrap()
    }

    /// What the servers have written to their logs.
    pub(super) fn logs(&self) -> String {
        let read = |server| std::fs::read_to_string(self.file("log", server)).unwrap_or_default();
        (1..=self.servers).map(read).collect()
    }

    fn file(&self, kind: &str, server: usize) -> PathBuf {
        self.directory.path().join(format!("server-{server}.{kind}"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The shell has a process group of its own, in which its servers are. It has not been waited for, so
        // that no other process can have its number.
        let group = format!("-{}", self.shell.id());
        let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
        assert!(killed.is_ok() && self.shell.wait().is_ok());
    }
}

/// The lines that come out of a pipe.
fn lines(pipe: BufReader<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1024);
    std::thread::spawn(move || {
        for line in pipe.split(b'\n') {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A port that nothing listens on, below those that systems give away by themselves.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 20_000 + (std::process::id() % 1000) as u16 * 10;
    loop {
        let port = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

#[test]
fn a_session_serves_on_free_ports_and_tells_what_differs() {
    let block = "$ cofferdam serve &\n[..]http://127.0.0.1:8080[..]\n$ PID=$!\n$ cofferdam status\n...\n\
        [..]127.0.0.1:8080[..]\n...\n$ kill $PID; wait $PID\n$ cat data/none\nnothing\n$ exit 3";
    let mut session = Session::start();
    let mut steps = super::shell::steps(block).unwrap().into_iter();
    for step in steps.by_ref().take(4) {
        session.run(&step).unwrap();
    }
    let wrong = session.run(&steps.next().unwrap()).unwrap_err();
    assert!(wrong.starts_with("status 1, printed:\n\n\ncat: "), "{wrong}");
    assert!(session.run(&steps.next().unwrap()).unwrap_err().starts_with("the shell has ended"));
}
