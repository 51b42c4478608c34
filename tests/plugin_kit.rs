//! The commands for authors of plugins: projects in every language are begun, built, checked and
//! called over HTTP, and mistakes are told with what mends them.

use crate::kit::host::program;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

mod dev;
mod examples;
mod mistakes;
mod third_party;
mod trials;

pub use examples::is_tried;
pub use mistakes::tool_module;

/// A folder in which projects are begun.
pub struct Workshop(TempDir);

impl Workshop {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Runs a command in this folder.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let data = self.0.path().join("data");
        program().current_dir(self.0.path()).args(arguments).arg("--data").arg(data).output().unwrap()
    }

    /// The JSON document of a command that has to succeed.
    pub fn document(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command that has to fail prints.
    pub fn complaint(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
        text(&output)
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Replaces a text in a file of the folder.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let file = self.path(path);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{path} has no {from:?}: {text}");
        std::fs::write(file, text.replace(from, to)).unwrap();
    }

    /// A tool's project with a component that was built before, and a recipe that copies it.
    pub fn prebuilt(&self, name: &str) {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/tool-datetime.wasm");
        self.prebuilt_of(name, &std::fs::read(built).unwrap());
    }

    /// Same as [`Self::prebuilt`], with this component or core module.
    pub fn prebuilt_of(&self, name: &str, built: &[u8]) {
        let kind = name.split('-').next().unwrap();
        self.document(&["plugin", "new", kind, name, "--lang", "rust"]);
        std::fs::create_dir(self.path(&format!("{name}/build"))).unwrap();
        std::fs::write(self.path(&format!("{name}/build/built.wasm")), built).unwrap();
        let recipe = "command = [\"true\"]\noutput = \"build/built.wasm\"\nwatch = [\"src\"]\n";
        std::fs::write(self.path(&format!("{name}/build.toml")), recipe).unwrap();
        if kind == "tool" {
            std::fs::remove_dir_all(self.path(&format!("{name}/cases"))).unwrap();
        }
    }
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Whether a program starts.
pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The checks of a report that are not good.
fn bad(report: &Value) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(|check| check["verdict"] != "ok").map(Value::to_string).collect()
}

#[test]
fn the_contract_is_written_as_it_is_in_the_source_tree() {
    let workshop = Workshop::new();
    let written = workshop.document(&["plugin", "wit", "contract"]);
    assert_eq!((&written["package"], &written["line"]), (&"cofferdam:plugin@0.1.0".into(), &"0.1".into()));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    for entry in std::fs::read_dir(own).unwrap() {
        let entry = entry.unwrap();
        let copy = workshop.path("contract").join(entry.file_name());
        assert_eq!(std::fs::read(copy).unwrap(), std::fs::read(entry.path()).unwrap());
    }
}

#[test]
fn a_project_asks_in_its_manifest_and_its_world_for_the_same_imports() {
    let workshop = Workshop::new();
    workshop.document(&["plugin", "new", "tool", "weather", "--lang", "js", "--imports", "http,clock"]);
    let manifest = std::fs::read_to_string(workshop.path("weather/plugin.toml")).unwrap();
    assert!(
        manifest.contains("imports = [\"http\", \"clock\"]\nhosts = [\"api.example.com\"]"),
        "{manifest}"
    );
    let world = std::fs::read_to_string(workshop.path("weather/wit/world.wit")).unwrap();
    for interface in ["log", "config", "http", "http-stream", "clock"] {
        assert!(world.contains(&format!("  import cofferdam:plugin/{interface}@0.1.0;\n")), "{world}");
    }
    assert!(!world.contains("model"), "{world}");
    assert!(workshop.path("weather/wit/deps/cofferdam-plugin/tool.wit").exists());
    assert!(workshop.path("weather/.gitignore").exists());
}

#[test]
fn no_template_is_written_with_a_gap() {
    let workshop = Workshop::new();
    for (kind, lang) in [
        ("tool", "rust"),
        ("tool", "js"),
        ("tool", "python"),
        ("tool", "c"),
        ("hook", "rust"),
        ("router", "rust"),
        ("provider", "rust"),
    ] {
        let name = format!("{kind}-{lang}");
        workshop.document(&["plugin", "new", kind, &name, "--lang", lang]);
        for file in ["plugin.toml", "build.toml", "README.md", "wit/world.wit"] {
            let text = std::fs::read_to_string(workshop.path(&name).join(file)).unwrap();
            assert!(!text.contains("{{") && !text.contains("}}"), "{name}/{file}: {text}");
        }
    }
}

#[test]
fn a_built_plugin_is_inspected_and_checked() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    let built = workshop.document(&["plugin", "build", "tool-time"]);
    let report = workshop.document(&["plugin", "check", "tool-time"]);
    assert!(bad(&report).is_empty(), "{report}");
    assert_eq!(report["sha256"], built["sha256"]);
    let calls = report["checks"].as_array().unwrap().iter().filter(|check| check["check"] == "calls");
    let calls: Vec<&str> = calls.map(|check| check["text"].as_str().unwrap()).collect();
    assert!(calls.iter().any(|call| call.starts_with("functions") && call.contains(" fuel, ")), "{calls:?}");
    let inspected = workshop.document(&["plugin", "inspect", "tool-time/plugins/tool-time.wasm"]);
    assert_eq!((&inspected["kind"], &inspected["refusal"]), (&Value::from("tool"), &Value::Null));
    assert_eq!((&inspected["line"], &inspected["version"]), (&Value::from("0.1"), &Value::from("0.1.0")));
    assert_eq!(report["line"], "0.1");
    assert_eq!(report["checks"][1]["text"], "cofferdam:plugin@0.1.0, line 0.1, served here");
    assert!(inspected["imports"].to_string().contains("cofferdam:plugin/clock@0.1.0"), "{inspected}");
    assert_eq!(inspected["sha256"], built["sha256"]);
}

#[test]
fn only_a_source_that_is_newer_makes_a_component_old() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let write = |path: &str| {
        let path = workshop.path("tool-time").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(path).unwrap().set_modified(later).unwrap();
    };
    for draft in ["src/.lib.rs.swp", "src/lib.rs~", "cases/a.toml"] {
        write(draft);
        let report = workshop.document(&["plugin", "check", "tool-time"]);
        assert!(bad(&report).is_empty(), "{draft}: {report}");
    }
    write("src/new.rs");
    let complaint = workshop.complaint(&["plugin", "check", "tool-time"]);
    assert!(complaint.contains("src/new.rs is newer than the component"), "{complaint}");
}

#[test]
fn grants_that_are_missing_come_with_the_command_that_gives_them() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit(
        "tool-time/plugin.toml",
        "imports = []",
        "imports = [\"clock\", \"http\", \"model\"]\nhosts = [\"api.test\"]\nsecrets = [\"key\"]",
    );
    workshop.document(&["plugin", "build", "tool-time"]);
    let report = workshop.document(&["plugin", "check", "tool-time"]);
    let missing = bad(&report);
    assert_eq!(missing.len(), 1, "{report}");
    let command = "cofferdam plugin grant tool-time --plugins tool-time/plugins --host api.test --secret key --import model";
    assert!(missing[0].contains(command), "{missing:?}");
    let mut words = command.split(' ').skip(1).collect::<Vec<_>>();
    words.push("--print");
    let granted = workshop.document(&words);
    assert!(granted["lines"].as_str().unwrap().contains("hosts = [\"api.test\"]"), "{granted}");
}
