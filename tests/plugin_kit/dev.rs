//! `plugin dev`: a project is served, and again after every change that passes.

use super::Workshop;
use super::mistakes::tool_module;
use crate::kit::client::http;
use crate::kit::host::program;
use crate::kit::processes::{children, runs};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// How long a round may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `plugin dev`; it is killed when dropped.
struct Dev {
    child: Child,
    events: Receiver<Value>,
    data: PathBuf,
}

impl Dev {
    fn start(workshop: &Workshop, project: &str) -> Self {
        Self::start_with(workshop, project, &[])
    }

    fn start_with(workshop: &Workshop, project: &str, options: &[&str]) -> Self {
        let mut command = program();
        command.args(["plugin", "dev", "--json", project]).args(options).current_dir(workshop.path("."));
        Self::of(command, workshop, project)
    }

    fn of(mut command: Command, workshop: &Workshop, project: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = sync_channel(64);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                sender.send(event).unwrap_or_default();
            }
        });
        Self { child, events, data: workshop.path(&format!("{project}/.cofferdam/data")) }
    }

    /// The next event, which has to be of this kind.
    fn next(&self, kind: &str) -> Value {
        let event = self.events.recv_timeout(PATIENCE).unwrap();
        assert_eq!(event["event"], kind, "{event}");
        event
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Stops it; it has to end well.
    fn end(mut self, signal: &str) {
        self.signal(signal);
        self.next("stopped");
        assert!(self.child.wait().unwrap().success());
    }

    /// The version of a plugin that is served.
    fn version(&self, name: &str) -> String {
        let output = program().args(["plugin", "list", "--json", "--data"]).arg(&self.data).output().unwrap();
        let plugins: Value = serde_json::from_slice(&output.stdout).unwrap();
        let plugin = plugins.as_array().unwrap().iter().find(|plugin| plugin["name"] == name);
        plugin.unwrap_or_else(|| panic!("no {name} in {plugins}"))["version"].as_str().unwrap().to_owned()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// A project whose build runs the script `src/build.sh`.
fn project(workshop: &Workshop, name: &str, script: &str) {
    workshop.prebuilt(name);
    workshop.edit(&format!("{name}/plugin.toml"), "imports = []", "imports = [\"clock\"]");
    workshop.edit(&format!("{name}/build.toml"), "[\"true\"]", "[\"sh\", \"src/build.sh\"]");
    std::fs::write(workshop.path(&format!("{name}/src/build.sh")), script).unwrap();
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not {what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_tool_is_served_and_again_after_a_change() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    workshop.edit("tool-time/plugin.toml", "Writes a text backwards", "Tells the current date and time");
    let case = "[[case]]\nname = \"tells the time\"\ncall = { function = \"datetime\" }\n";
    std::fs::create_dir(workshop.path("tool-time/cases")).unwrap();
    std::fs::write(workshop.path("tool-time/cases/first.toml"), case).unwrap();
    let dev = Dev::start(&workshop, "tool-time");
    let live = dev.next("live");
    assert!(live["done"][0].as_str().unwrap().starts_with("built "), "{live}");
    assert_eq!(live["done"].as_array().unwrap()[1..], [json!("checked"), json!("1 case"), json!("live")]);
    let serving = dev.next("serving");
    let (listen, key) = (serving["listen"].as_str().unwrap(), serving["key"].as_str().unwrap());
    let curl = serving["curl"].as_str().unwrap();
    assert!(curl.contains(&format!("http://{listen}/v1/responses")) && curl.contains(key), "{curl}");
    let log = std::fs::read_to_string(serving["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("listening") && !log.contains(key), "{log}");
    let mode = std::fs::metadata(workshop.path("tool-time/.cofferdam")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let body = curl.split("-d '").nth(1).unwrap().strip_suffix('\'').unwrap().to_owned();
    let request = http().build().unwrap().post(format!("http://{listen}/v1/responses"));
    let request = request.bearer_auth(key).header("content-type", "application/json").body(body);
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("\"timezone\"") && answer.contains("response.completed"), "{answer}");

    workshop.edit("tool-time/plugin.toml", "0.1.0", "0.2.0");
    dev.next("live");
    assert_eq!(dev.version("tool-time"), "0.2.0");
    // Only the cases change: the component stays as it is.
    std::fs::write(workshop.path("tool-time/cases/second.toml"), case.replace("the time", "it again"))
        .unwrap();
    assert_eq!(dev.next("live")["done"], json!(["checked", "2 cases", "live"]));
    let host = children(dev.child.id());
    assert_eq!(host.len(), 1, "{host:?}");
    dev.end("TERM");
    assert!(!runs(&host[0]), "the host of the loop runs on");
}

#[test]
fn greeting_of_the_loop_names_the_console_and_the_command_that_opens_it() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    let mut child = program();
    child.args(["plugin", "dev", "tool-time"]).current_dir(workshop.path("."));
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let greeting: Vec<String> = lines.take_while(|line| !line.starts_with("The log: ")).collect();
    let command = greeting.iter().find_map(|line| line.strip_prefix("`cofferdam ")?.split_once('`'));
    let words = command.map(|(words, _)| words.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    let link = program().args(&words).current_dir(workshop.path(".")).output().unwrap();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
    let served =
        greeting.iter().find(|line| line.starts_with("tool-time 0.1.0 is served on http://127.0.0.1:"));
    let admin = served.and_then(|line| line.split_once("; console, health and metrics on "));
    let (_, admin) = admin.unwrap_or_else(|| panic!("{greeting:?}"));
    assert_eq!(command.unwrap().1, " prints a link that signs in to the console.");
    let link = super::text(&link);
    assert!(link.contains(admin.trim_end_matches('.')), "{link}");
}

#[tokio::test]
async fn a_failing_call_is_recorded_on_request_and_told_with_the_command_that_replays_it() {
    let workshop = Workshop::new();
    workshop.prebuilt_of("tool-breaks", &tool_module("0.1.0", b"text"));
    let dev = Dev::start_with(&workshop, "tool-breaks", &["--record"]);
    dev.next("live");
    let serving = dev.next("serving");
    let folder = serving["recordings"].as_str().unwrap();
    assert_eq!(Path::new(folder), dev.data.canonicalize().unwrap().join("recordings"));
    let (listen, key) = (serving["listen"].as_str().unwrap(), serving["key"].as_str().unwrap());
    let ask = async |settings: Value| {
        let tools = json!([{"type": "service:tool_breaks", "parameters": settings}]);
        let body = json!({"model": "local/demo", "input": "Hello!", "tools": tools});
        let request = http().build().unwrap().post(format!("http://{listen}/v1/responses"));
        let request = request.bearer_auth(key).header("content-type", "application/json");
        request.body(body.to_string()).send().await.unwrap().status()
    };
    assert_eq!(ask(json!({})).await, 200);
    assert!(ask(json!({"long": "x".repeat(200)})).await.is_server_error());
    let recorded = dev.next("recorded");
    assert_eq!((&recorded["function"], &recorded["kind"]), (&json!("functions"), &json!("unreachable")));
    assert!(recorded["file"].as_str().unwrap().starts_with(folder), "{recorded}");
    let command = recorded["replay"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!((words[0], words[4]), ("cofferdam", "tool-breaks/plugins/tool-breaks.wasm"), "{command}");
    let replayed = workshop.document(&words[1..]);
    assert_eq!((&replayed["same"], &replayed["recorded_component"]), (&json!(true), &json!(true)));
    dev.end("TERM");
    // Those of an earlier run are not new, and without the option nothing is recorded.
    let dev = Dev::start(&workshop, "tool-breaks");
    dev.next("live");
    assert_eq!(dev.next("serving")["recordings"], Value::Null);
    dev.end("TERM");
}

#[test]
fn recording_is_not_switched_on_in_a_configuration_of_the_author() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    std::fs::write(workshop.path("own.toml"), "").unwrap();
    let command = ["plugin", "dev", "tool-time", "--record=3", "--config", "own.toml"];
    let complaint = workshop.complaint(&command);
    assert!(complaint.contains("set `record = 3` in [plugins.tool-time] of own.toml"), "{complaint}");
    let output = workshop.run(&["plugin", "dev", "tool-time", "--record=0"]);
    assert!(super::text(&output).contains("0 is not in 1..=1000"), "{}", super::text(&output));
}

#[test]
fn a_component_is_compiled_once_for_its_check_its_tests_and_its_host() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    let cache = workshop.path("cache");
    std::fs::create_dir(&cache).unwrap();
    let mut dev = program();
    dev.args(["plugin", "dev", "--json", "tool-time"]).current_dir(workshop.path("."));
    dev.env("COFFERDAM_CACHE", &cache);
    let dev = Dev::of(dev, &workshop, "tool-time");
    dev.next("live");
    let serving = dev.next("serving");
    let log = || std::fs::read_to_string(serving["log"].as_str().unwrap()).unwrap();
    let is_own = |line: &&str| line.contains("plugin compiled") && line.contains("tool-time");
    until("compiled", || log().lines().any(|line| is_own(&line)));
    let log = log();
    assert!(log.lines().find(is_own).unwrap().contains("\"from_cache\":true"), "{log}");
    dev.end("TERM");
}

#[test]
fn a_router_takes_the_place_of_the_built_in_one_and_a_provider_is_called_by_its_model() {
    let workshop = Workshop::new();
    let built = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../plugins/{name}.wasm"));
        std::fs::read(file).unwrap()
    };
    workshop.prebuilt_of("router", &built("router"));
    std::fs::remove_dir_all(workshop.path("router/cases")).unwrap();
    let dev = Dev::start(&workshop, "router");
    dev.next("live");
    assert!(dev.next("serving")["curl"].as_str().unwrap().contains("local/demo"));
    assert_eq!(dev.version("router"), "0.1.0");
    dev.end("TERM");

    workshop.prebuilt_of("provider-mine", &built("provider-openai-chat"));
    std::fs::remove_dir_all(workshop.path("provider-mine/cases")).unwrap();
    let dev = Dev::start(&workshop, "provider-mine");
    dev.next("live");
    assert_eq!(dev.next("serving")["curl"], Value::Null);
    dev.end("TERM");
    let config = "[[providers]]\nname = \"p\"\nadapter = \"mine\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
        [[models]]\nid = \"mine/one\"\nendpoints = [{ provider = \"p\", model = \"one\" }]\n";
    std::fs::write(workshop.path("own.toml"), config).unwrap();
    let dev = Dev::start_with(&workshop, "provider-mine", &["--config", "own.toml"]);
    dev.next("live");
    assert!(dev.next("serving")["curl"].as_str().unwrap().contains("mine/one"));
    dev.end("TERM");
}

#[test]
fn what_does_not_pass_is_told_and_the_component_before_it_serves() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    let dev = Dev::start(&workshop, "tool-time");
    dev.next("live");
    dev.next("serving");
    let fails = |step: &str, text: &str| {
        let failed = dev.next("failed");
        assert_eq!(failed["step"], step, "{failed}");
        assert!(failed["text"].as_str().unwrap().contains(text), "no {text} in {failed}");
        assert_eq!(dev.version("tool-time"), "0.1.0");
    };
    let script = workshop.path("tool-time/src/build.sh");
    std::fs::write(&script, "echo on standard output; echo the reason >&2; exit 3").unwrap();
    fails("build", "on standard output\nthe reason\n`sh src/build.sh` ended with exit status: 3");
    std::fs::write(&script, "true # now well").unwrap();
    dev.next("live");
    workshop.edit("tool-time/plugin.toml", "imports = [\"clock\"]", "imports = []");
    fails("check", "plugin.toml asks for nothing");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    dev.next("live");
    std::fs::create_dir(workshop.path("tool-time/cases")).unwrap();
    let case =
        "[[case]]\nname = \"a case\"\ncall = { function = \"datetime\" }\nexpect = { failed = \"no\" }\n";
    std::fs::write(workshop.path("tool-time/cases/first.toml"), case).unwrap();
    fails("test", "wrong  a case: expected failed");
    std::fs::remove_dir_all(workshop.path("tool-time/cases")).unwrap();
    dev.next("live");
    workshop.edit("tool-time/plugin.toml", "version =", "vresion =");
    fails("build", "unknown field `vresion`");
    dev.end("INT");
}

#[test]
fn folders_that_vanish_and_files_that_are_replaced_are_seen() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    let dev = Dev::start(&workshop, "tool-time");
    dev.next("live");
    dev.next("serving");
    let (src, away) = (workshop.path("tool-time/src"), workshop.path("away"));
    std::fs::rename(&src, &away).unwrap();
    assert_eq!(dev.next("failed")["step"], "build");
    std::fs::write(away.join("build.sh"), "true # changed meanwhile").unwrap();
    std::fs::rename(&away, &src).unwrap();
    dev.next("live");
    // As editors do that never write into the file itself.
    std::fs::write(src.join("build.sh.new"), "exit 4").unwrap();
    std::fs::rename(src.join("build.sh.new"), src.join("build.sh")).unwrap();
    assert_eq!(dev.next("failed")["step"], "build");
    dev.end("TERM");
}

#[test]
fn a_build_that_writes_into_the_sources_is_not_repeated_without_end() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "echo round >> src/rounds");
    let rounds = || std::fs::read_to_string(workshop.path("tool-time/src/rounds")).unwrap().lines().count();
    let dev = Dev::start(&workshop, "tool-time");
    dev.next("live");
    dev.next("serving");
    // The first change could be the author's.
    dev.next("live");
    assert_eq!(rounds(), 2);
    let note = dev.next("note");
    assert!(note["text"].as_str().unwrap().contains("src/rounds changed during two builds"), "{note}");
    std::fs::write(workshop.path("tool-time/src/other"), "a change").unwrap();
    dev.next("live");
    assert_eq!(rounds(), 3);
    dev.end("TERM");
    assert_eq!(rounds(), 3);
}

#[test]
fn a_signal_ends_a_build_with_all_its_processes() {
    for (command, signal) in [("dev", "INT"), ("build", "TERM")] {
        let workshop = Workshop::new();
        project(&workshop, "tool-time", "sleep 1000 & echo $! > sleeper; echo $$ > shell; wait");
        let mut child = program();
        child.args(["plugin", command, "tool-time"]).current_dir(workshop.path("."));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let read =
            |name: &str| std::fs::read_to_string(workshop.path("tool-time").join(name)).unwrap_or_default();
        until("building", || read("shell").ends_with('\n'));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().success(), command == "dev");
        until("ended", || !runs(&read("sleeper")) && !runs(&read("shell")));
    }
}

#[test]
fn a_killed_loop_leaves_no_host() {
    let workshop = Workshop::new();
    project(&workshop, "tool-time", "true");
    let dev = Dev::start(&workshop, "tool-time");
    dev.next("live");
    let host = children(dev.child.id());
    assert!(!host.is_empty());
    drop(dev);
    until("ended", || host.iter().all(|pid| !runs(pid)));
}

#[test]
fn a_folder_without_a_project_is_not_waited_for() {
    let workshop = Workshop::new();
    let complaint = workshop.complaint(&["plugin", "dev", "nothing"]);
    assert!(complaint.contains("nothing/plugin.toml is not there"), "{complaint}");
    assert!(!workshop.path("nothing").exists());
}

/// What a command writes to a terminal.
fn on_a_terminal(workshop: &Workshop, line: &str) -> String {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_cofferdam"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(workshop.path(".")).stdin(Stdio::null());
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

#[test]
fn long_builds_show_their_time_on_a_terminal_and_nowhere_else() {
    let workshop = Workshop::new();
    // The time itself is what is shown.
    project(&workshop, "tool-time", "sleep 2; echo done");
    let plain = super::text(&workshop.run(&["plugin", "build", "tool-time"]));
    assert!(plain.contains("done\n") && !plain.contains(['\r', '\x1b']), "{plain:?}");
    if Path::new("/usr/bin/script").exists() {
        let shown = on_a_terminal(&workshop, "plugin build tool-time");
        assert!(shown.contains("\rsh, 1 s\x1b[K"), "{shown:?}");
        assert!(shown.contains("\r\x1b[Kdone"), "{shown:?}");
    }
}
