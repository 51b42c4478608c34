//! Tests of the built program from the operator's side: first start, commands beside a running
//! host, signals, exit codes. The tests of the API are in `tests/` of the workspace.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

fn command(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.env_remove("COFFERDAM_LOG").env("COFFERDAM_CACHE", cache).arg("--data").arg(data);
    command
}

fn run(data: &Path, line: &str) -> Output {
    command(data).args(line.split_whitespace()).output().unwrap()
}

fn json(data: &Path, line: &str) -> Value {
    let output = run(data, &format!("--json {line}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A running program; killed when dropped.
struct Host {
    child: Child,
    greeting: Value,
}

impl Host {
    fn start(data: &Path) -> Self {
        let mut child = command(data)
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(std::fs::OpenOptions::new().create(true).append(true).open(data.join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, greeting: serde_json::from_str(&line).unwrap() }
    }

    fn key(&self) -> &str {
        self.greeting["key"].as_str().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends one request and reads the whole response.
    fn exchange(&self, listener: &str, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.greeting[listener].as_str().unwrap()).unwrap();
        let length = body.len();
        write!(stream, "{head}\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Polls until the response contains the text, because a signal takes effect after a moment.
    fn wait_for(&self, path: &str, text: &str) {
        for _ in 0..10_000 {
            if self.exchange("admin", &format!("GET {path} HTTP/1.1"), "").contains(text) {
                return;
            }
        }
        panic!("{path} never said {text}");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn data() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn first_start_prints_a_line_that_streams_a_real_answer() {
    let data = data();
    let host = Host::start(data.path());
    let curl = host.greeting["curl"].as_str().unwrap();
    assert!(curl.contains(host.key()) && curl.contains(host.greeting["listen"].as_str().unwrap()));
    let body = curl.rsplit('\'').nth(1).unwrap();
    let head = format!("POST /v1/responses HTTP/1.1\r\nAuthorization: Bearer {}", host.key());
    let answer = host.exchange("listen", &head, body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("event: response.completed") && answer.contains("data: [DONE]"), "{answer}");
    assert!(!std::fs::read_to_string(data.path().join("log")).unwrap().contains(host.key()));
}

#[test]
fn later_starts_create_no_key() {
    let data = data();
    drop(Host::start(data.path()));
    let host = Host::start(data.path());
    assert_eq!(host.greeting.get("key"), None);
    assert!(host.greeting["curl"].as_str().unwrap().contains("YOUR_KEY"));
}

#[test]
fn commands_make_a_store_and_run_beside_a_host() {
    let data = data();
    let created = run(data.path(), "workspace create acme --json");
    let place = format!("made a store in {}\n", data.path().canonicalize().unwrap().display());
    assert_eq!(String::from_utf8_lossy(&created.stderr), place);
    let intern = {
        let host = Host::start(data.path());
        let intern = json(data.path(), "intern create bot --workspace acme");
        let key = json(data.path(), "key create --workspace acme --intern bot");
        let members: Vec<&str> = key.as_object().unwrap().keys().map(String::as_str).collect();
        let order =
            ["id", "key", "kind", "workspace_id", "member_id", "intern_id", "created_at", "expires_at"];
        assert_eq!(members, order);
        assert_eq!((&key["kind"], &key["intern_id"]), (&"intern".into(), &intern["id"]));
        let head = format!("GET /v1/key HTTP/1.1\r\nAuthorization: Bearer {}", key["key"].as_str().unwrap());
        assert!(host.exchange("listen", &head, "").starts_with("HTTP/1.1 200"));
        assert!(json(data.path(), "status")["serving"]["pid"].is_number());
        intern
    };
    let interns = json(data.path(), "intern list");
    assert_eq!(interns[0]["id"], intern["id"]);
}

#[test]
fn exit_codes_distinguish_failures() {
    let data = data();
    assert_eq!(run(data.path(), "key revoke nothing").status.code(), Some(1));
    assert_eq!(run(data.path(), "nonsense").status.code(), Some(2));
    let file = data.path().join("cofferdam.toml");
    std::fs::write(&file, "[server]\nlisten = 1\n").unwrap();
    for line in ["serve", "serve --check", "workspace list", "models"] {
        let output = run(data.path(), line);
        assert_eq!(output.status.code(), Some(78), "{line}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("cofferdam.toml:2:10: server.listen: expected a text"), "{line}: {told}");
    }
    std::fs::write(&file, "[[providers]]\nname = \"p\"\nadapter = \"nope\"\n").unwrap();
    let output = run(data.path(), "serve --check");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78));
    assert!(told.contains("there is no plugin provider-nope"), "{told}");
}

#[test]
fn bad_reload_is_reported_and_changes_nothing() {
    let data = data();
    let host = Host::start(data.path());
    host.wait_for("/readyz", "\"ready\":true");
    std::fs::write(data.path().join("cofferdam.toml"), "nonsense").unwrap();
    host.signal(Signal::HUP);
    host.wait_for("/metrics", "cofferdam_reloads_refused_total 1");
    let models = "[[models]]\nid = \"a/b\"\nendpoints = [{ provider = \"d\", model = \"demo\" }]\n";
    let providers = "[[providers]]\nname = \"d\"\nadapter = \"demo\"\n";
    assert_eq!(json(data.path(), "models")[0]["id"], "local/demo");
    std::fs::write(data.path().join("cofferdam.toml"), format!("{providers}{models}")).unwrap();
    host.signal(Signal::HUP);
    host.wait_for("/metrics", "cofferdam_reloads_total 1");
    assert_eq!(json(data.path(), "models")[0]["id"], "a/b");
}

#[test]
fn signal_to_stop_ends_the_host_cleanly() {
    let data = data();
    let mut host = Host::start(data.path());
    host.wait_for("/readyz", "\"ready\":true");
    host.signal(Signal::TERM);
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    assert!(!data.path().join("admin.sock").exists());
}
