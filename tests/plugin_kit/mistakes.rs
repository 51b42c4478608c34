//! Mistakes of authors, each with the text that says what mends it. The texts stand in
//! `docs/plugins/mistakes.md`.

use super::examples::is_tried;
use super::{Workshop, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The texts of the page by their mistakes, in which `...` stands for any text.
fn told_texts() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugins/mistakes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].to_owned(), cells[2].trim_matches('`').trim().to_owned())).collect()
}

/// Checks that a command tells a mistake as the page says.
#[track_caller]
fn told(mistake: &str, complaint: &str) {
    let texts = told_texts();
    let (_, text) =
        texts.iter().find(|(name, _)| name == mistake).unwrap_or_else(|| panic!("no row {mistake}"));
    let mut rest = complaint;
    for part in text.split("...") {
        let Some((_, after)) = rest.split_once(part) else { panic!("{mistake}: no {part:?} in {complaint}") };
        rest = after;
    }
}

#[test]
fn every_row_of_the_page_is_tried() {
    let tests = include_str!("mistakes.rs");
    let rows = told_texts();
    assert!(rows.len() >= 20, "{rows:?}");
    for (mistake, _) in rows {
        assert!(tests.contains(&format!("told(\"{mistake}\"")), "no test of the row {mistake}");
    }
}

#[test]
fn a_folder_without_a_project_is_told_how_to_get_one() {
    let workshop = Workshop::new();
    for command in ["build", "check"] {
        let complaint = workshop.complaint(&["plugin", command, "nothing"]);
        told("no project", &complaint);
    }
}

#[test]
fn a_provider_that_no_adapter_could_name_is_not_begun() {
    let workshop = Workshop::new();
    let complaint = workshop.complaint(&["plugin", "new", "provider", "mine", "--lang", "rust"]);
    told("a provider without its prefix", &complaint);
    assert!(!workshop.path("mine").exists());
}

#[test]
fn a_project_that_is_not_built_is_told_to_build() {
    let workshop = Workshop::new();
    workshop.document(&["plugin", "new", "tool", "t", "--lang", "c"]);
    let complaint = workshop.complaint(&["plugin", "check", "t"]);
    told("not built", &complaint);
}

#[test]
fn mistakes_in_both_files_are_told_with_their_line() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/build.toml", "output =", "outptu =");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("a typo in build.toml", &complaint);
    workshop.edit("tool-time/plugin.toml", "imports =", "import =");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("a typo in the manifest", &complaint);
}

#[test]
fn a_missing_program_is_told_with_its_packages() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    let needs =
        "needs = [{ program = \"no-such-program\", at_least = \"18\", debian = \"some packages\" }]\n";
    workshop.edit("tool-time/build.toml", "command =", &format!("{needs}command ="));
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("a missing toolchain", &complaint);
    workshop.edit(
        "tool-time/build.toml",
        "no-such-program\", at_least = \"18\"",
        "cargo\", at_least = \"9999\"",
    );
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("an old toolchain", &complaint);
}

#[test]
fn a_command_that_fails_or_makes_nothing_is_named() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit(
        "tool-time/build.toml",
        "command = [\"true\"]",
        "command = [[\"true\"], [\"false\", \"x\"]]",
    );
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("a command that fails", &complaint);
    workshop.edit("tool-time/build.toml", "[[\"true\"], [\"false\", \"x\"]]", "[\"true\"]");
    workshop.edit("tool-time/build.toml", "build/built.wasm", "build/other.wasm");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("no output", &complaint);
    workshop.edit("tool-time/build.toml", "[\"true\"]", "[\"no-such-compiler\"]");
    told("a missing compiler", &workshop.complaint(&["plugin", "build", "tool-time"]));
}

#[test]
fn an_import_that_the_manifest_does_not_ask_for_is_told_with_both_lines() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    let world = "  import cofferdam:plugin/config@0.1.0;\n";
    workshop.edit(
        "tool-time/wit/world.wit",
        world,
        &format!("{world}  import cofferdam:plugin/clock@0.1.0;\n"),
    );
    workshop.document(&["plugin", "build", "tool-time"]);
    let complaint = workshop.complaint(&["plugin", "check", "tool-time"]);
    told("an import that is not asked for", &complaint);
    assert!(complaint.contains("error: one check failed"), "{complaint}");
}

#[test]
fn a_component_of_another_kind_is_refused() {
    let workshop = Workshop::new();
    workshop.prebuilt("hook-time");
    workshop.document(&["plugin", "build", "hook-time"]);
    let complaint = workshop.complaint(&["plugin", "check", "hook-time"]);
    told("the wrong world", &complaint);
}

#[test]
fn a_component_that_is_older_than_its_sources_is_told_to_be_built_again() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let source = std::fs::File::options().append(true).open(workshop.path("tool-time/src/lib.rs")).unwrap();
    source.set_modified(later).unwrap();
    let complaint = workshop.complaint(&["plugin", "check", "tool-time"]);
    told("a component older than its sources", &complaint);
    workshop.edit("tool-time/plugin.toml", "0.1.0", "0.1.1");
    let complaint = workshop.complaint(&["plugin", "check", "tool-time"]);
    assert!(complaint.contains("tool-time/plugins/tool-time.toml differs from plugin.toml"), "{complaint}");
    assert!(complaint.contains("cofferdam plugin build tool-time"), "{complaint}");
}

#[test]
fn a_core_module_without_the_exports_of_the_world_is_refused() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    std::fs::write(workshop.path("tool-time/build/built.wasm"), b"\0asm\x01\0\0\0").unwrap();
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    told("a missing export", &complaint);
    assert!(!workshop.path("tool-time/plugins").exists());
}

#[test]
fn a_tool_that_breaks_is_told_with_the_kind_of_failure() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.edit("tool-time/plugin.toml", "[tool]", "[limits]\nmemory_mib = 1\n[tool]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let complaint = workshop.complaint(&["plugin", "check", "tool-time"]);
    told("too much memory", &complaint);
}

#[test]
fn a_case_that_is_not_met_is_told_with_the_difference() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    // The suite runs all the same.
    told("no cases", &text(&workshop.run(&["plugin", "test", "tool-time"])));
    std::fs::create_dir(workshop.path("tool-time/cases")).unwrap();
    std::fs::write(workshop.path("tool-time/cases/a.toml"), "").unwrap();
    told("no cases", &text(&workshop.run(&["plugin", "test", "tool-time"])));
    let call = "call = { function = \"datetime\", arguments = { timezone = \"Asia/Tokyo\" } }";
    let bad = "call = { function = \"datetime\", arguments = { timezone = \"nowhere\" } }";
    let cases = [
        format!("name = \"met\"\n{call}\nexpect = {{ item = {{ timezone = \"Asia/Tokyo\" }} }}"),
        format!("name = \"other\"\n{call}\nexpect = {{ item = {{ timezone = \"UTC\" }} }}"),
        format!("name = \"error\"\n{bad}\nexpect = {{ invalid_arguments = {{ contains = \"timezone\" }} }}"),
    ];
    let file: String = cases.iter().map(|case| format!("[[case]]\n{case}\n")).collect();
    std::fs::write(workshop.path("tool-time/cases/a.toml"), &file).unwrap();
    let complaint = workshop.complaint(&["plugin", "test", "tool-time"]);
    assert!(complaint.contains("ok     met\n"), "{complaint}");
    told("a case that is not met", &complaint);
    assert!(complaint.contains("ok     error\n7 passed, 1 failed\n"), "{complaint}");
    std::fs::write(workshop.path("tool-time/cases/a.toml"), file.replace("expect", "expcet")).unwrap();
    let complaint = workshop.complaint(&["plugin", "test", "tool-time"]);
    told("a typo in a case", &complaint);
    let other = file.replace("\"datetime\"", "\"date_time\"");
    std::fs::write(workshop.path("tool-time/cases/a.toml"), other).unwrap();
    told("a wrong function in a case", &workshop.complaint(&["plugin", "test", "tool-time"]));
}

#[test]
fn what_has_no_template_is_told_with_what_has_one() {
    let workshop = Workshop::new();
    let complaint = workshop.complaint(&["plugin", "new", "router", "r", "--lang", "c"]);
    assert!(complaint.contains("no template of a router in c; there are "), "{complaint}");
    assert!(complaint.contains("tool in python"), "{complaint}");
    let complaint =
        workshop.complaint(&["plugin", "new", "router", "r", "--lang", "rust", "--imports", "http"]);
    assert!(complaint.contains("a router cannot have http; it can have none"), "{complaint}");
    assert!(!workshop.path("r").exists());
    std::fs::create_dir(workshop.path("there")).unwrap();
    let complaint = workshop.complaint(&["plugin", "new", "tool", "there", "--lang", "c"]);
    assert!(complaint.contains("there exists already"), "{complaint}");
}

/// What `plugin check` says of the test guest that misbehaves, when a case calls this function.
fn misbehaves(function: &str) -> String {
    let workshop = Workshop::new();
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/rogue/built/tool-rogue.wasm");
    workshop.prebuilt_of("tool-bad", &std::fs::read(guest).unwrap());
    let limits = "[limits]\nmemory_mib = 128\ndeadline_ms = 3000\n[tool]";
    workshop.edit("tool-bad/plugin.toml", "[tool]", limits);
    let imports = "imports = [\"scratch\", \"catalog\", \"request\"]";
    workshop.edit("tool-bad/plugin.toml", "imports = []", imports);
    workshop.document(&["plugin", "build", "tool-bad"]);
    let case = format!("[[case]]\nname = \"a case\"\ncall = {{ function = \"{function}\" }}\n");
    std::fs::create_dir(workshop.path("tool-bad/cases")).unwrap();
    std::fs::write(workshop.path("tool-bad/cases/a.toml"), case).unwrap();
    workshop.complaint(&["plugin", "check", "tool-bad"])
}

#[test]
fn calls_that_break_or_exceed_a_limit_are_told_with_the_key_of_the_limit() {
    let panic = misbehaves("trap");
    told("a panic", &panic);
    assert!(panic.contains("in the case `a case`, tool-bad/cases/a.toml:1\n"), "{panic}");
    assert!(panic.contains("log: warn guest call failed: broke (unreachable), in invoke\n"), "{panic}");
    let hang = misbehaves("hang");
    told("an endless loop", &hang);
    let invoke = hang.lines().find(|line| line.contains("invoke ") && line.contains(" fuel, ")).unwrap();
    assert!(invoke.contains("wrong"), "{hang}");
    told("a memory bomb", &misbehaves("allocate"));
    told("too much output", &misbehaves("flood"));
    told("an item that is no JSON object", &misbehaves("lie"));
}

/// A tool for the version of the contract, as a core module. Each call tells the model this text and has an empty
/// item. Settings of 100 to 999 bytes break the call that asks for its functions.
pub fn tool_module(version: &str, for_model: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>();
    let words = |words: &[u32]| text(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    let functions = words(&[0, 1040, 1, 0, 2048, 1, 2048, 1, 2056, 2]);
    let output = words(&[0, 0, 2064, u32::try_from(for_model.len()).unwrap(), 2056, 2, 0, 0, 0, 0]);
    let tools = format!("cofferdam:plugin/tools@{version}");
    let module = format!(
        "(module
           (memory (export \"memory\") 64)
           (global $free (mut i32) (i32.const 65536))
           (data (i32.const 1024) \"{functions}\")
           (data (i32.const 1104) \"{output}\")
           (data (i32.const 2048) \"f\") (data (i32.const 2056) \"{{}}\") (data (i32.const 2064) \"{}\")
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
             global.get $free
             (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get 3)) (i32.const 7))
               (i32.const -8))))
           (func (export \"{tools}#functions\") (param i32 i32 i32 i32 i32 i32 i64) (result i32)
             (if (i32.lt_u (i32.sub (local.get 1) (i32.const 100)) (i32.const 900)) (then unreachable))
             (i32.const 1024))
           (func (export \"{tools}#invoke\") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)
             (i32.const 1104)))",
        text(for_model)
    );
    wat::parse_str(module).unwrap()
}

#[test]
fn a_text_that_is_not_utf_8_is_told() {
    let workshop = Workshop::new();
    workshop.prebuilt_of("tool-bytes", &tool_module("0.1.0", b"plain text"));
    workshop.document(&["plugin", "build", "tool-bytes"]);
    let report = workshop.document(&["plugin", "check", "tool-bytes"]);
    assert_eq!(report["wrong"], 0, "{report}");
    std::fs::write(workshop.path("tool-bytes/build/built.wasm"), tool_module("0.1.0", b"\xff\xfe")).unwrap();
    workshop.document(&["plugin", "build", "tool-bytes"]);
    told("a text that is not UTF-8", &workshop.complaint(&["plugin", "check", "tool-bytes"]));
}

#[test]
fn a_component_of_another_contract_is_told_how_to_get_the_contract_of_this_host() {
    let workshop = Workshop::new();
    workshop.prebuilt_of("tool-new", &tool_module("0.9.0", b"text"));
    for entry in std::fs::read_dir(workshop.path("tool-new/wit/deps/cofferdam-plugin")).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, text.replace("@0.1.0", "@0.9.0")).unwrap();
    }
    workshop.edit("tool-new/wit/world.wit", "@0.1.0", "@0.9.0");
    workshop.document(&["plugin", "build", "tool-new"]);
    told("another contract", &workshop.complaint(&["plugin", "check", "tool-new"]));
}

#[test]
fn an_import_that_is_not_granted_is_told_with_the_command_that_grants_it() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\", \"model\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let output = workshop.run(&["plugin", "check", "tool-time"]);
    assert!(output.status.success());
    told("an import that is not granted", &text(&output));
}

#[test]
fn http_without_hosts_is_told_with_the_line_of_the_manifest() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\", \"http\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let output = workshop.run(&["plugin", "check", "tool-time"]);
    assert!(output.status.success());
    told("`http` without hosts", &text(&output));
}

#[test]
fn a_core_module_in_place_of_a_component_is_refused_by_inspect_too() {
    let workshop = Workshop::new();
    std::fs::write(workshop.path("core.wasm"), b"\0asm\x01\0\0\0").unwrap();
    told("a core module", &workshop.complaint(&["plugin", "inspect", "core.wasm"]));
}

#[test]
fn the_name_of_a_built_in_plugin_is_told_by_check_and_refused_by_serve() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.edit("tool-time/plugin.toml", "\"tool-time\"", "\"tool-datetime\"");
    workshop.document(&["plugin", "build", "tool-time"]);
    let output = workshop.run(&["plugin", "check", "tool-time"]);
    assert!(output.status.success());
    told("the name of a built-in plugin", &text(&output));
    let refused = workshop.run(&["serve", "--check", "--plugins", "tool-time/plugins"]);
    assert_eq!(refused.status.code(), Some(78));
    told("the name of a built-in plugin, served", &text(&refused));
}

#[test]
fn what_the_host_would_refuse_beside_its_own_plugins_is_told() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    let check = |workshop: &Workshop, name: &str| {
        workshop.document(&["plugin", "build", name]);
        workshop.complaint(&["plugin", "check", name])
    };
    workshop.edit("tool-time/plugin.toml", "\"tool_time\"", "\"web_search\"");
    told("a type of another tool", &check(&workshop, "tool-time"));
    workshop.edit("tool-time/plugin.toml", "\"web_search\"", "\"Time Of\"");
    told("a type that cannot be called", &workshop.complaint(&["plugin", "check", "tool-time"]));
    workshop.edit("tool-time/plugin.toml", "\"Time Of\"", "\"tool_time\"");
    workshop.edit("tool-time/plugin.toml", "\"0.1.0\"", "\"1\"");
    told("a version that cannot be compared", &check(&workshop, "tool-time"));
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/hook-response-healing.wasm");
    workshop.prebuilt_of("hook-mine", &std::fs::read(guest).unwrap());
    workshop.edit("hook-mine/plugin.toml", "\"on-request\"", "\"on-response\"");
    workshop.edit("hook-mine/plugin.toml", "\"hook-mine\"\nphases", "\"web\"\nphases");
    told("an id of the host", &check(&workshop, "hook-mine"));
    workshop.edit("hook-mine/plugin.toml", "\"web\"", "\"response-healing\"");
    told("an id of another hook", &check(&workshop, "hook-mine"));
}

#[test]
fn files_that_others_can_write_are_told_with_the_command_that_mends_them() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/plugin.toml", "imports = []", "imports = [\"clock\"]");
    workshop.document(&["plugin", "build", "tool-time"]);
    let folder = workshop.path("tool-time/plugins");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = workshop.run(&["serve", "--check", "--plugins", "tool-time/plugins"]);
    assert_eq!(refused.status.code(), Some(78));
    told("a folder that others can write", &text(&refused));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(workshop.run(&["serve", "--check", "--plugins", "tool-time/plugins"]).status.success());
}

/// A new project in this language whose source is wrong in one place.
fn spoiled(language: &str, file: &str, from: &str, to: &str) -> Workshop {
    let workshop = Workshop::new();
    workshop.document(&["plugin", "new", "tool", "mine", "--lang", language]);
    workshop.edit(&format!("mine/{file}"), from, to);
    workshop
}

#[test]
fn a_compile_error_in_c_is_told_whole() {
    if is_tried("c", &["clang", "wasm-ld"]) {
        let workshop = spoiled("c", "src/tool.c", "static cfd_bytes reversed", "static cfd_bites reversed");
        told("a compile error in C", &workshop.complaint(&["plugin", "build", "mine"]));
    }
}

#[test]
fn a_compile_error_in_rust_is_told_whole() {
    if is_tried("rust", &["cargo"]) {
        let workshop = spoiled("rust", "src/lib.rs", "impl Guest for", "impl Ghost for");
        told("a compile error in Rust", &workshop.complaint(&["plugin", "build", "mine"]));
    }
}

#[test]
fn mistakes_in_javascript_are_told() {
    if !is_tried("js", &["node", "npm"]) {
        return;
    }
    let workshop = spoiled("js", "src/tool.js", "costPico: 0", "costPico: 0n");
    workshop.document(&["plugin", "build", "mine"]);
    told("a BigInt in JavaScript", &workshop.complaint(&["plugin", "check", "mine"]));
    workshop.edit("mine/src/tool.js", "costPico: 0n", "costPico: 0");
    workshop.edit("mine/src/tool.js", "const text = ", "if (name) throw new Error('no');\n    const text = ");
    workshop.document(&["plugin", "build", "mine"]);
    told("another exception in JavaScript", &workshop.complaint(&["plugin", "check", "mine"]));
    workshop.edit("mine/src/tool.js", "const text = ", "const text == ");
    told("a compile error in JavaScript", &workshop.complaint(&["plugin", "build", "mine"]));
}

#[test]
fn mistakes_in_python_are_told() {
    if !is_tried("python", &["python3"]) {
        return;
    }
    let workshop = spoiled(
        "python",
        "src/app.py",
        "text = json.loads",
        "raise RuntimeError\n            text = json.loads",
    );
    workshop.document(&["plugin", "build", "mine"]);
    told("another exception in Python", &workshop.complaint(&["plugin", "check", "mine"]));
    workshop.edit("mine/src/app.py", "text = json.loads", "text = = json.loads");
    told("a compile error in Python", &workshop.complaint(&["plugin", "build", "mine"]));
}
