//! From files to plugins: folders, overrides, grants, the cache.

use std::collections::BTreeMap;
use std::fs;

use cofferdam_runtime::{CallErrorKind, OperatorGrant, PluginSource, PluginState, Services, read_plugin_dir};
use tempfile::TempDir;

use crate::kit::{
    HOOK, ROUTER, TOOL, candidates, context, everything, fixture, load, plugin, router, runtime, runtime_in,
    source, summary,
};
use crate::rogue::Rogue;

#[test]
fn a_folder_of_plugins_is_read_whole() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("router.toml"), ROUTER).unwrap();
    fs::write(folder.path().join("router.wasm"), fixture("router")).unwrap();
    fs::write(folder.path().join("README.md"), "not a plugin").unwrap();
    let sources = read_plugin_dir(folder.path()).unwrap();
    assert_eq!(sources.len(), 1);
    let plugins = runtime().load(sources, &BTreeMap::new()).unwrap();
    let router = plugins.get("router").unwrap();
    assert!(router.origin().ends_with("router.toml"));
    assert_eq!(router.digest().len(), 64);
    assert_eq!(router.state(), PluginState::NotCompiled);
}

#[test]
fn unreadable_folders_name_the_file() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("router.toml"), format!("{ROUTER}colour = 3\n")).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("router.toml: line 4: unknown field `colour`"), "{message}");
    fs::write(folder.path().join("router.toml"), ROUTER).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("router.wasm: "), "{message}");
    fs::write(folder.path().join("router.wasm"), vec![0; (32 << 20) + 1]).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("more than 33554432 bytes"), "{message}");
    assert!(read_plugin_dir(&folder.path().join("absent")).is_err());
}

#[tokio::test]
async fn later_sources_replace_earlier_ones_by_name() {
    let runtime = runtime();
    let embedded = source("router", ROUTER, Rogue::of("router").build());
    let installed = source("router", ROUTER, fixture("router"));
    let plugins = runtime.load(vec![embedded, installed], &BTreeMap::new()).unwrap();
    assert_eq!(plugins.iter().count(), 1);
    let router = plugins.get("router").unwrap();
    assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
}

#[test]
fn names_of_file_manifest_and_configuration_agree() {
    let runtime = runtime();
    let misnamed = PluginSource { name: "other".into(), ..source("router", ROUTER, fixture("router")) };
    let message = runtime.load(vec![misnamed], &BTreeMap::new()).err().unwrap().to_string();
    assert!(message.contains("`name` is \"router\", but the file is named \"other\""), "{message}");
    let grants = BTreeMap::from([("ruter".to_owned(), OperatorGrant::default())]);
    let message = runtime.load(vec![], &grants).err().unwrap().to_string();
    assert_eq!(message, "[plugins.ruter]: no plugin of this name is installed");
}

#[tokio::test]
async fn missing_grants_name_the_line_for_the_operator_and_nothing_for_the_client() {
    let runtime = runtime();
    let hook = plugin(&runtime, "hook", HOOK, fixture("hook"), OperatorGrant::default());
    let lines: Vec<_> = hook.denials().iter().map(|denial| denial.line.as_str()).collect();
    assert!(lines.contains(&"[plugins.hook] hosts = [\"api.test\"]"), "{lines:?}");
    assert!(lines.contains(&"[plugins.hook] imports = [\"model\"]"), "{lines:?}");
    let error = hook.on_request(&context(), Services::default(), b"{}", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Denied);
    assert_eq!(error.to_string(), "plugin hook lacks a grant");
    let PluginState::Failed(reason) = hook.state() else { panic!("failed") };
    assert_eq!(
        reason,
        "imports http, which is not granted; to allow it: [plugins.hook] hosts = [\"api.test\"]"
    );
}

#[tokio::test]
async fn an_import_used_but_not_asked_for_is_denied() {
    let runtime = runtime();
    let silent = TOOL.replace("\"clock\", ", "");
    let tool = plugin(&runtime, "tool", &silent, fixture("tool"), everything());
    let error = tool.functions(&context(), Services::default(), b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Denied);
    let PluginState::Failed(reason) = tool.state() else { panic!("failed") };
    assert!(reason.contains("imports clock, which is not granted"), "{reason}");
    assert!(reason.contains("tool.toml: imports = [\"catalog\", \"clock\", \"http\", "), "{reason}");
}

#[tokio::test]
async fn compiled_plugins_come_from_the_cache_and_tampered_ones_do_not() {
    let folder = TempDir::new().unwrap();
    let state = async || {
        let runtime = runtime_in(folder.path());
        let router = router(&runtime);
        router.compile().await.unwrap();
        assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
        router.state()
    };
    assert!(matches!(state().await, PluginState::Compiled { from_cache: false, .. }));
    assert!(matches!(state().await, PluginState::Compiled { from_cache: true, .. }));
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    for entry in entries.filter(|path| path.file_name().is_some_and(|name| name != "key")) {
        let mut bytes = fs::read(&entry).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&entry, bytes).unwrap();
    }
    assert!(matches!(state().await, PluginState::Compiled { from_cache: false, .. }));
    assert!(matches!(state().await, PluginState::Compiled { from_cache: true, .. }));
}

#[tokio::test]
async fn without_a_trusted_cache_plugins_still_work() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let runtime = runtime_in(folder.path());
    let router = router(&runtime);
    assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written there");
}

#[tokio::test]
async fn many_callers_share_one_compilation() {
    let folder = TempDir::new().unwrap();
    let runtime = runtime_in(folder.path());
    let router = router(&runtime);
    let compile = || router.compile();
    let (a, b, c, d) = tokio::join!(compile(), compile(), compile(), compile());
    assert!(a.is_ok() && b.is_ok() && c.is_ok() && d.is_ok());
    let code = |path: &fs::DirEntry| path.file_name().to_string_lossy().ends_with(".code");
    assert_eq!(fs::read_dir(folder.path()).unwrap().filter(|entry| code(entry.as_ref().unwrap())).count(), 1);
}

#[tokio::test]
async fn old_plugins_go_on_after_a_reload() {
    let runtime = runtime();
    let old = load(&runtime, "router", ROUTER, fixture("router"), OperatorGrant::default()).unwrap();
    let bad = load(&runtime, "router", ROUTER, vec![], OperatorGrant::default());
    assert!(bad.is_err());
    let router = old.get("router").unwrap();
    assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
}
