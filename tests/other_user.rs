//! Commands beside a host that runs as another user, and sockets that another user made. They need root, to run
//! programs as other users.

use crate::kit::program::program;
use crate::kit::shim::{Action, Call, Rule, Shim};
use crate::plugin_lock::{Edition, NAME};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const USER: u32 = 54_321;
const STRANGER: u32 = 54_322;

/// A folder that all users may enter, with a data directory of [`USER`]. `None` without root.
fn folder() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this test needs root");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    chown(&data, Some(USER), Some(USER)).unwrap();
    Some(folder)
}

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = program();
    command.arg("--json").arg("--data").arg(data).args(arguments);
    command
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn root_reaches_the_host_of_another_user_and_takes_no_lock_of_it() {
    let Some(folder) = folder() else { return };
    let data = folder.path().join("data");
    let mut serve = command(&data, &["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    serve.uid(USER).gid(USER).current_dir("/").env_remove("COFFERDAM_CACHE");
    let Ok(mut host) = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        eprintln!("SKIPPED: another user cannot run the program where it is");
        return;
    };
    let mut greeting = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    let made = command(&data, &["key", "create", "--workspace", "default"]).output().unwrap();
    host.kill().unwrap();
    host.wait().unwrap();
    let made: Value = serde_json::from_slice(&made.stdout)
        .unwrap_or_else(|_| panic!("{greeting}: {}", String::from_utf8_lossy(&made.stderr)));
    assert!(made["key"].as_str().unwrap().starts_with("cfd_"));
    // Without the host, root does not open the store of another user.
    let refused = error_of(&command(&data, &["key", "list"]).output().unwrap());
    assert!(refused.contains(&format!("belongs to user {USER}")), "{refused}");
    let examined = command(&data, &["doctor", "--offline"]).output().unwrap();
    let examined: Value = serde_json::from_slice(&examined.stdout).unwrap();
    let findings = examined["findings"].as_array().unwrap();
    let is_found = |finding: &&Value| {
        finding["id"] == "data-directory"
            && finding["severity"] == "bad"
            && finding["text"].as_str().unwrap().contains(&format!("belongs to user {USER}"))
    };
    assert!(findings.iter().any(|finding| is_found(&finding)), "{examined}");
    assert!(findings.len() > 1, "the other checks are made: {examined}");
}

/// The owner of the data directory exchanges the folder in which root writes the copy of a plugin.
#[test]
fn root_writes_a_plugin_through_no_link_of_the_owner() {
    let Some(folder) = folder() else { return };
    let data = folder.path().join("data");
    let (own, other) = (folder.path().join("file"), folder.path().join("links"));
    std::fs::write(&own, "a file of root").unwrap();
    std::fs::create_dir(&other).unwrap();
    for name in [format!("{NAME}.toml"), format!("{NAME}.wasm")] {
        std::os::unix::fs::symlink(&own, other.join(&name)).unwrap();
        std::os::unix::fs::symlink(&own, other.join(format!("{name}.new"))).unwrap();
    }
    let shim = Shim::new(&data);
    shim.rules(&[Rule::new(Call::Write, "plugin-incoming", Action::Freeze)]);
    let plugin = Edition::plain(0, "0.1.0");
    let mut install = command(&data, &["plugin", "install", &plugin.file()]);
    install.envs(shim.environment()).stdout(Stdio::null()).stderr(Stdio::piped());
    let install = install.spawn().unwrap();
    shim.until_frozen();
    let entries = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
    let incoming =
        entries.into_iter().find(|path| path.to_str().unwrap().contains("plugin-incoming")).unwrap();
    std::fs::rename(&incoming, folder.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&other, &incoming).unwrap();
    shim.rules(&[]);
    error_of(&install.wait_with_output().unwrap());
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "a file of root");
    for name in [format!("{NAME}.toml"), format!("{NAME}.wasm")] {
        assert!(other.join(name).is_symlink(), "another file is in the place of the link");
    }
}

#[test]
fn nothing_is_sent_to_a_socket_that_another_user_can_have_made() {
    let Some(folder) = folder() else { return };
    let data = folder.path().join("data");
    let listener = UnixListener::bind(data.join("admin.sock")).unwrap();
    std::fs::set_permissions(data.join("admin.sock"), Permissions::from_mode(0o777)).unwrap();
    let config = folder.path().join("cofferdam.toml");
    std::fs::write(&config, "[store]\nurl = \"postgres://cofferdam@127.0.0.1:1/none\"\n").unwrap();
    let list = ["--config", config.to_str().unwrap(), "key", "list"];
    // Of another user, and of this user where others may write.
    for (owner, mode, problem) in [(USER, 0o755, "belongs to user"), (STRANGER, 0o777, "may write into")] {
        chown(&data, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        let mut asks = command(&data, &list);
        let Ok(output) = asks.uid(STRANGER).gid(STRANGER).current_dir("/").output() else {
            eprintln!("SKIPPED: another user cannot run the program where it is");
            return;
        };
        let refused = error_of(&output);
        assert!(refused.contains(problem), "{refused}");
        let mut sent = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"");
    }
}
