//! A change that is killed at any step leaves the state before it or after it.

use super::{Commands, Edition, NAME, setup};
use crate::kit::host::Setup;
use crate::kit::shim::{Action, Call, EIO, Rule, Shim};
use std::process::{Command, Stdio};

/// No change has more steps of one sort than this.
const STEPS_MAX: u64 = 40;

/// A change: what is installed before, the command, and the versions before and after.
struct Tried {
    prepare: fn(&Setup),
    line: fn() -> (Vec<String>, Option<Edition>),
    before: Option<&'static str>,
    after: Option<&'static str>,
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn install_first(setup: &Setup) {
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
}

fn install_both(setup: &Setup) {
    install_first(setup);
    setup.done(&["plugin", "update", &Edition::plain(1, "0.2.0").file()]);
}

fn hold(setup: &Setup) {
    let (first, second) = ("imports = [\"clock\"]", "imports = [\"clock\", \"http\"]\nhosts = [\"a.test\"]");
    setup.done(&["plugin", "install", &Edition::new(0, "0.1.0", first).file()]);
    setup.done(&["plugin", "update", &Edition::new(1, "0.2.0", second).file()]);
}

fn update() -> (Vec<String>, Option<Edition>) {
    let edition = Edition::plain(1, "0.2.0");
    (words(&["plugin", "update", &edition.file()]), Some(edition))
}

/// Installs the plugin with a table of the configuration.
fn configure(setup: &Setup) {
    install_first(setup);
    let table = format!("[plugins.{NAME}]\nmemory_mib = 32\n");
    let file = setup.directory().join("cofferdam.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + &table).unwrap();
}

const TRIED: [Tried; 6] = [
    Tried {
        prepare: |_| {},
        line: || {
            let edition = Edition::plain(0, "0.1.0");
            (words(&["plugin", "install", &edition.file()]), Some(edition))
        },
        before: None,
        after: Some("0.1.0"),
    },
    Tried { prepare: install_first, line: update, before: Some("0.1.0"), after: Some("0.2.0") },
    Tried {
        prepare: install_both,
        line: || (words(&["plugin", "rollback", NAME]), None),
        before: Some("0.2.0"),
        after: Some("0.1.0"),
    },
    Tried {
        prepare: install_both,
        line: || (words(&["plugin", "remove", NAME]), None),
        before: Some("0.2.0"),
        after: None,
    },
    Tried {
        prepare: configure,
        line: || (words(&["plugin", "remove", NAME, "--grants"]), None),
        before: Some("0.1.0"),
        after: None,
    },
    Tried {
        prepare: hold,
        line: || (words(&["plugin", "grant", NAME, "--accept"]), None),
        before: Some("0.1.0"),
        after: Some("0.2.0"),
    },
];

/// A new directory with the files of another one.
fn copy_of(prepared: &Setup) -> Setup {
    let setup = setup();
    let from = format!("{}/.", prepared.directory().display());
    let status = Command::new("cp").args(["-a", &from]).arg(setup.directory()).status().unwrap();
    assert!(status.success());
    setup.reread_config()
}

/// The command with the shim, on the directory of `setup`.
fn command(setup: &Setup, shim: &Shim, line: &[String]) -> Command {
    let mut command = crate::kit::host::program();
    command.arg("--json").arg("--data").arg(setup.data());
    command.arg("--config").arg(setup.directory().join("cofferdam.toml"));
    command.args(line).envs(shim.environment()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Checks that the state is one of the two, and with `again` that the command can be given again.
/// Listing the plugins loads them as a start does.
fn check(setup: &Setup, tried: &Tried, line: &[String], again: bool) {
    let version = setup.version();
    assert!([tried.before, tried.after].contains(&version.as_deref()), "{line:?}: {version:?}");
    if again && version.as_deref() == tried.before {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        setup.done(&line);
        assert_eq!(setup.version().as_deref(), tried.after);
        let left = setup.files();
        assert!(left.iter().all(|name| !name.ends_with(".new")), "{left:?}");
    }
    if setup.version().is_none() {
        // A table without its plugin would make the next start fail.
        let config = std::fs::read_to_string(setup.directory().join("cofferdam.toml")).unwrap();
        assert!(!config.contains(NAME), "{config}");
    }
}

/// Runs a command until the shim stops it, and kills it then. Returns whether it came to its end
/// before.
fn ends_before_it_is_stopped(mut command: Command, shim: &Shim) -> bool {
    let mut child = command.spawn().unwrap();
    let ended = loop {
        if shim.is_frozen() {
            break false;
        }
        if child.try_wait().unwrap().is_some() {
            break true;
        }
        std::thread::yield_now();
    };
    child.kill().unwrap();
    child.wait().unwrap();
    ended
}

/// Kills the change at each call of this sort for files with this word in their path. Returns how many
/// there were.
fn kill_at_each(call: Call, path: &'static str, tried: &Tried, prepared: &Setup, line: &[String]) -> u64 {
    for after in 0..STEPS_MAX {
        let setup = copy_of(prepared);
        let shim = Shim::new(&setup.data());
        shim.rules(&[Rule { after, ..Rule::new(call, path, Action::Freeze) }]);
        let ended = ends_before_it_is_stopped(command(&setup, &shim, line), &shim);
        check(&setup.reread_config(), tried, line, after % 3 == 1);
        if ended {
            return after;
        }
    }
    panic!("{line:?} has more than {STEPS_MAX} steps");
}

#[test]
fn a_change_that_is_killed_at_any_step_is_done_or_not_begun() {
    for tried in TRIED {
        let prepared = setup();
        prepared.write_config();
        (tried.prepare)(&prepared);
        let (line, _edition) = (tried.line)();
        let sorts = [Call::Create, Call::Sync].into_iter();
        let sorts = sorts.flat_map(|call| ["plugins", "cofferdam.toml"].map(|path| (call, path)));
        let steps: u64 = sorts.map(|(call, path)| kill_at_each(call, path, &tried, &prepared, &line)).sum();
        assert!(steps >= 2, "only {steps} steps of {line:?} were interrupted");
    }
}

#[test]
fn a_change_whose_disk_fails_is_refused_and_leaves_the_state_before() {
    let prepared = setup();
    prepared.write_config();
    install_first(&prepared);
    let (line, _edition) = update();
    for (call, after) in
        [(Call::Create, 0), (Call::Write, 0), (Call::Sync, 0), (Call::Sync, 1), (Call::Sync, 2)]
    {
        let setup = copy_of(&prepared);
        let shim = Shim::new(&setup.data());
        shim.rules(&[Rule { after, ..Rule::new(call, "plugins", Action::Fail(EIO)) }]);
        let output = command(&setup, &shim, &line).stderr(Stdio::piped()).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && complaint.contains("/plugins"), "{complaint}");
        assert_eq!(setup.version().as_deref(), Some("0.1.0"));
    }
}
