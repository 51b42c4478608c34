//! The tool of the templates in each language: begun, built, checked, and called over HTTP. What
//! downloads packages is tried only where `COFFERDAM_LANGUAGES` names it (`just plugins-all`), and
//! what needs a program that is not installed is skipped.

use super::{Workshop, bad, is_installed};
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::upstream::Upstream;
use crate::tools::script::{answer, call, calls};
use serde_json::json;
use std::path::Path;

/// The languages of `guests/examples/`.
const LANGUAGES: [&str; 4] = ["rust", "js", "python", "c"];

/// Whether to go on: the language is wanted here, and its programs are installed.
pub fn is_tried(language: &str, programs: &[&str]) -> bool {
    let named = std::env::var("COFFERDAM_LANGUAGES").unwrap_or_default();
    let downloads = language != "c";
    if downloads && !named.split(',').any(|word| word == language || word == "all") {
        println!("SKIPPED: COFFERDAM_LANGUAGES does not name {language}");
        return false;
    }
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        println!("SKIPPED: {program} is not installed");
    }
    missing.is_none()
}

/// Begins, builds, checks and tests a project as it is.
fn made(workshop: &Workshop, kind: &str, name: &str, language: &str) {
    workshop.document(&["plugin", "new", kind, name, "--lang", language]);
    // As in a project that was copied from a repository: `build` writes the contract again.
    std::fs::remove_dir_all(workshop.path(&format!("{name}/wit/deps"))).unwrap();
    workshop.document(&["plugin", "build", name]);
    let report = workshop.document(&["plugin", "check", name]);
    assert!(bad(&report).is_empty(), "{report}");
    let tested = workshop.document(&["plugin", "test", name]);
    assert_eq!((tested["cases"].as_array().unwrap().len(), &tested["failed"]), (2, &json!(0)), "{tested}");
}

/// A model calls the tool of a new project through a host.
async fn a_new_tool_answers(language: &str) {
    let workshop = Workshop::new();
    let name = format!("backwards-{language}");
    made(&workshop, "tool", &name, language);
    let upstream = Upstream::start().await;
    let config =
        format!("{}\n[plugins.{name}]\ncompile = \"start\"\n", single("openai-chat", &upstream.base));
    let host = Setup::new().config(&config).plugins(&workshop.path(&format!("{name}/plugins"))).start();
    let arguments = r#"{"text": "Ab, \"\u00e9\" \ud83d\ude42"}"#;
    upstream.reply(calls(false, "", &[call("call_1", "backwards", arguments)]));
    upstream.reply(answer(false, "done"));
    let kind = format!("service:{}", name.replace('-', "_"));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": kind}]});
    let response = Client::new(&host).ask(&request, false).await;
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["status"]), (&json!(kind), &json!("completed")), "{response}");
    assert_eq!(item["backwards"], "🙂 \"é\" ,bA", "{response}");
}

#[tokio::test]
async fn a_new_tool_in_c_answers() {
    if is_tried("c", &["clang", "wasm-ld"]) {
        a_new_tool_answers("c").await;
    }
}

#[tokio::test]
async fn a_new_tool_in_rust_answers() {
    if is_tried("rust", &["cargo"]) {
        a_new_tool_answers("rust").await;
    }
}

#[tokio::test]
async fn a_new_tool_in_js_answers() {
    if is_tried("js", &["node", "npm"]) {
        a_new_tool_answers("js").await;
    }
}

#[tokio::test]
async fn a_new_tool_in_python_answers() {
    if is_tried("python", &["python3"]) {
        a_new_tool_answers("python").await;
    }
}

#[test]
fn new_hooks_routers_and_providers_pass_their_checks() {
    if is_tried("rust", &["cargo"]) {
        let workshop = Workshop::new();
        for (kind, name) in [("hook", "my-hook"), ("router", "router"), ("provider", "provider-mine")] {
            made(&workshop, kind, name, "rust");
        }
    }
}

#[test]
fn the_examples_are_what_new_writes() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/examples");
    let workshop = Workshop::new();
    let mut cases = Vec::new();
    for language in LANGUAGES {
        let name = format!("backwards-{language}");
        workshop.document(&["plugin", "new", "tool", &name, "--lang", language]);
        std::fs::remove_dir_all(workshop.path(&format!("{name}/wit/deps"))).unwrap();
        let (written, kept) = (files(&workshop.path(&name)), files(&examples.join(&name)));
        if std::env::var("COFFERDAM_DOCS").as_deref() == Ok("write") {
            for (path, text) in &written {
                let path = examples.join(&name).join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            continue;
        }
        assert!(
            written == kept,
            "guests/examples/{name} differs from what `plugin new` writes: run `just docs`"
        );
        cases.push(written.into_iter().find(|(path, _)| path == "cases/first.toml").unwrap().1);
    }
    assert!(cases.windows(2).all(|pair| pair[0] == pair[1]), "all languages have the same cases");
}

/// Path and text of each file below a folder, without what builds and checks leave there.
pub fn files(folder: &Path) -> Vec<(String, String)> {
    let made = ["build", "plugins", "node_modules", "target", ".venv", ".cofferdam", "deps", "__pycache__"];
    let generated = ["Cargo.lock", "package-lock.json"];
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in std::fs::read_dir(current).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !made.contains(&name) {
                folders.push(path);
            } else if path.is_file() && !generated.contains(&name) {
                let shown = path.strip_prefix(folder).unwrap().display().to_string();
                files.push((shown, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
