//! Mistakes of authors, each with the text that says what mends it.

use super::Workshop;

#[test]
fn a_folder_without_a_project_is_told_how_to_get_one() {
    let workshop = Workshop::new();
    for command in ["build", "check"] {
        let complaint = workshop.complaint(&["plugin", command, "nothing"]);
        assert!(
            complaint.contains("nothing/plugin.toml is not there; `cofferdam plugin new`"),
            "{complaint}"
        );
    }
}

#[test]
fn a_project_that_is_not_built_is_told_to_build() {
    let workshop = Workshop::new();
    workshop.document(&["plugin", "new", "tool", "t", "--lang", "c"]);
    let complaint = workshop.complaint(&["plugin", "check", "t"]);
    assert!(
        complaint.contains("t/plugins/t.wasm is not there: run `cofferdam plugin build t`"),
        "{complaint}"
    );
}

#[test]
fn mistakes_in_both_files_are_told_with_their_line() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    workshop.edit("tool-time/build.toml", "output =", "outptu =");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    assert!(complaint.contains("tool-time/build.toml:2: unknown field `outptu`"), "{complaint}");
    workshop.edit("tool-time/plugin.toml", "imports =", "import =");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    assert!(complaint.contains("tool-time/plugin.toml:5: unknown field `import`"), "{complaint}");
}

#[test]
fn a_missing_program_is_told_with_its_packages() {
    let workshop = Workshop::new();
    workshop.prebuilt("tool-time");
    let needs =
        "needs = [{ program = \"no-such-program\", at_least = \"18\", debian = \"some packages\" }]\n";
    workshop.edit("tool-time/build.toml", "command =", &format!("{needs}command ="));
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    let wanted = "no-such-program 18 or newer is not on the PATH; Debian: apt-get install some packages";
    assert!(complaint.contains(wanted), "{complaint}");
    workshop.edit(
        "tool-time/build.toml",
        "no-such-program\", at_least = \"18\"",
        "cargo\", at_least = \"9999\"",
    );
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    assert!(complaint.contains("cargo 9999 or newer is not on the PATH, this is 1."), "{complaint}");
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
    assert!(complaint.contains("`false x` ended with exit status: 1"), "{complaint}");
    workshop.edit("tool-time/build.toml", "[[\"true\"], [\"false\", \"x\"]]", "[\"true\"]");
    workshop.edit("tool-time/build.toml", "build/built.wasm", "build/other.wasm");
    let complaint = workshop.complaint(&["plugin", "build", "tool-time"]);
    assert!(complaint.contains("did not make `output`, tool-time/build/other.wasm"), "{complaint}");
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
    let remove = "wit/world.wit:7: remove `import cofferdam:plugin/clock@0.1.0;` and build again";
    assert!(complaint.contains(remove), "{complaint}");
    assert!(complaint.contains("or plugin.toml:5: `imports = [\"clock\"]`"), "{complaint}");
    assert!(complaint.contains("error: one check failed"), "{complaint}");
}

#[test]
fn a_component_of_another_kind_is_refused() {
    let workshop = Workshop::new();
    workshop.prebuilt("hook-time");
    workshop.document(&["plugin", "build", "hook-time"]);
    let complaint = workshop.complaint(&["plugin", "check", "hook-time"]);
    assert!(complaint.contains("kind = \"hook\", but the component is a tool"), "{complaint}");
    assert!(
        complaint.contains("make `kind` in plugin.toml and the exports in wit/world.wit agree"),
        "{complaint}"
    );
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
    assert!(complaint.contains("tool-time/src/lib.rs is newer than the component"), "{complaint}");
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
    assert!(complaint.contains("tool-time/wit/world.wit: "), "{complaint}");
    assert!(complaint.contains("failed to find export of interface"), "{complaint}");
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
    assert!(complaint.contains("ran out of memory"), "{complaint}");
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
