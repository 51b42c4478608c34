//! Loading plugins: folders, replacing built-ins, grants, and the compile cache.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cofferdam_runtime::{
    CallErrorKind, OperatorGrant, Plugin, PluginSource, PluginState, Services, read_plugin_dir,
};
use tempfile::TempDir;

use crate::kit::{
    HOOK, ROUTER, TOOL, candidates, context, everything, fixture, load, plugin, router, runtime, runtime_in,
    source, summary,
};
use crate::rogue::Rogue;

#[test]
fn all_plugins_of_a_folder_are_read() {
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
    assert!(message.contains("router.toml: line 5: unknown field `colour`"), "{message}");
    fs::write(folder.path().join("router.toml"), ROUTER).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("router.wasm: "), "{message}");
    fs::write(folder.path().join("router.wasm"), vec![0; (32 << 20) + 1]).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("more than 33554432 bytes"), "{message}");
    assert!(read_plugin_dir(&folder.path().join("absent")).is_err());
    // Without the check of the name, the only error would be a missing component.
    fs::rename(folder.path().join("router.toml"), folder.path().join("ruter.toml")).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("`name` is \"router\", but the file is named \"ruter\""), "{message}");
}

#[tokio::test]
async fn a_built_in_is_replaced_where_the_configuration_says_so() {
    let runtime = runtime();
    let sources = || {
        let built_in = source("router", ROUTER, Rogue::of("router").build());
        let installed = source("router", ROUTER, fixture("router"));
        vec![PluginSource { is_built_in: true, origin: "embedded".into(), ..built_in }, installed]
    };
    let message = runtime.load(sources(), &BTreeMap::new()).err().unwrap().to_string();
    assert!(message.contains("router.toml: router is built in"), "{message}");
    assert!(message.contains("`replaces = true` in [plugins.router]"), "{message}");
    let grant = OperatorGrant { replaces: true, ..OperatorGrant::default() };
    let plugins = runtime.load(sources(), &BTreeMap::from([("router".to_owned(), grant.clone())])).unwrap();
    assert_eq!(plugins.iter().count(), 1);
    let router = plugins.get("router").unwrap();
    assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
    // With two plugins from folders it is unclear which one `replaces` means.
    let twice =
        vec![source("router", ROUTER, fixture("router")), source("router", ROUTER, fixture("router"))];
    let grants = BTreeMap::from([("router".to_owned(), grant)]);
    let message = runtime.load(twice, &grants).err().unwrap().to_string();
    assert!(message.contains("the name `router` is taken by router.toml"), "{message}");
}

#[test]
fn a_manifest_cannot_declare_that_it_replaces_a_built_in() {
    let manifest = format!("{ROUTER}replaces = true\n");
    let error = runtime().load(vec![source("router", &manifest, fixture("router"))], &BTreeMap::new()).err();
    assert!(error.unwrap().to_string().contains("unknown field `replaces`"));
}

#[test]
fn ids_and_types_shared_by_two_plugins_are_refused() {
    let runtime = runtime();
    let renamed =
        |manifest: &str, name: &str| manifest.replacen("name = \"", &format!("name = \"{name}-"), 1);
    let clients = "client_types = [\"mcp\"]\n[[tool.items]]\ntype = \"mcp_call\"\n";
    let other = TOOL.replace("type = \"test\"", "type = \"other\"");
    let picky = |name: &str| {
        format!("name = \"{name}\"\nkind = \"router\"\nversion = \"1\"\n[router]\nid = \"test\"\n")
    };
    for (first, second, component, says) in [
        (HOOK.to_owned(), renamed(HOOK, "z"), ["hook", "hook"], "the hook id `test` is taken by plugin hook"),
        (picky("a"), picky("b"), ["router", "router"], "the router id `test` is taken by plugin a"),
        // Requests name hooks and routers in one list.
        (HOOK.to_owned(), picky("r"), ["hook", "router"], "the router id `test` is taken by plugin hook"),
        (TOOL.to_owned(), renamed(TOOL, "z"), ["tool", "tool"], "the tool type `test` is taken by plugin"),
        (
            format!("{TOOL}{clients}"),
            renamed(&format!("{other}{}", clients.replace("mcp_call", "other_call")), "b"),
            ["tool", "tool"],
            "the client tool type `mcp`",
        ),
        (
            format!("{TOOL}{clients}"),
            renamed(&format!("{other}{}", clients.replace("\"mcp\"", "\"other\"")), "b"),
            ["tool", "tool"],
            "the item type `mcp_call`",
        ),
    ] {
        let named = |manifest: &str| manifest.split('"').nth(1).unwrap().to_owned();
        let sources = [first, second].into_iter().zip(component);
        let sources =
            sources.map(|(manifest, component)| source(&named(&manifest), &manifest, fixture(component)));
        let message = runtime.load(sources.collect(), &BTreeMap::new()).err().unwrap().to_string();
        assert!(message.contains(says), "{says}: {message}");
    }
}

#[test]
fn two_manifests_cannot_share_a_component() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("router.toml"), ROUTER).unwrap();
    fs::write(folder.path().join("router.wasm"), fixture("router")).unwrap();
    let other = ROUTER.replace("\"router\"\nkind", "\"router-b\"\nkind");
    fs::write(folder.path().join("router-b.toml"), format!("{other}component = \"link.wasm\"\n")).unwrap();
    std::os::unix::fs::symlink("router.wasm", folder.path().join("link.wasm")).unwrap();
    let message = read_plugin_dir(folder.path()).unwrap_err().to_string();
    assert!(message.contains("the component file `"), "{message}");
}

#[test]
fn a_component_must_match_its_pin() {
    let runtime = runtime();
    let pinned = |sha256: &str| {
        let grant = OperatorGrant { sha256: Some(sha256.to_owned()), ..OperatorGrant::default() };
        load(&runtime, "router", ROUTER, fixture("router"), grant)
    };
    let message = pinned(&"0".repeat(64)).err().unwrap().to_string();
    assert!(message.contains("[plugins.router] sha256 pins 0000"), "{message}");
    let digest = router(&runtime).digest().to_owned();
    assert!(message.contains(&digest), "{message}");
    assert!(pinned(&digest).is_ok());
}

#[test]
fn names_of_file_manifest_and_configuration_must_agree() {
    let runtime = runtime();
    let misnamed = PluginSource { name: "other".into(), ..source("router", ROUTER, fixture("router")) };
    let message = runtime.load(vec![misnamed], &BTreeMap::new()).err().unwrap().to_string();
    assert!(message.contains("`name` is \"router\", but the file is named \"other\""), "{message}");
    let grants = BTreeMap::from([("ruter".to_owned(), OperatorGrant::default())]);
    let message = runtime.load(vec![], &grants).err().unwrap().to_string();
    assert_eq!(message, "[plugins.ruter]: no plugin of this name is installed");
}

#[tokio::test]
async fn missing_grants_show_the_line_to_the_operator_only() {
    let runtime = runtime();
    let hook = plugin(&runtime, "hook", HOOK, fixture("hook"), OperatorGrant::default());
    let lines: Vec<_> = hook.denials().iter().map(|denial| denial.line.as_str()).collect();
    assert!(lines.contains(&"[plugins.hook] hosts = [\"api.test\"]"), "{lines:?}");
    assert!(lines.contains(&"[plugins.hook] imports = [\"model\", \"tool-call\"]"), "{lines:?}");
    let error = hook.on_request(&context(), Services::default(), b"{}", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Denied);
    assert_eq!(error.to_string(), "plugin hook lacks a grant");
    let PluginState::Failed(reason) = hook.state() else { panic!("failed") };
    assert_eq!(
        reason,
        "lacks grants: http, model, tool-call; to allow it: [plugins.hook] hosts = [\"api.test\"]; \
         [plugins.hook] imports = [\"model\", \"tool-call\"]"
    );
}

#[test]
fn an_import_missing_in_the_manifest_is_refused() {
    let runtime = runtime();
    let silent = TOOL.replace("\"clock\", ", "");
    let message = load(&runtime, "tool", &silent, fixture("tool"), everything()).err().unwrap().to_string();
    assert!(message.contains("imports clock, which its manifest does not ask for"), "{message}");
    assert!(message.contains("set `imports = ["), "{message}");
    assert!(message.contains("`import cofferdam:plugin/clock@0.1.0;` from the world in wit/"), "{message}");
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
async fn plugin_compiled_ahead_is_loaded_by_its_first_call() {
    let folder = TempDir::new().unwrap();
    let runtime = runtime_in(folder.path());
    let call = async |router: &Arc<Plugin>| {
        assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
    };
    for _start in 0..2 {
        let router = router(&runtime);
        router.compile_ahead().await.unwrap();
        assert_eq!(router.state(), PluginState::Cached);
        call(&router).await;
        assert!(matches!(router.state(), PluginState::Compiled { from_cache: true, .. }));
    }
    let runtime = runtime_in(folder.path());
    let router = router(&runtime);
    router.compile_ahead().await.unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    call(&router).await;
    assert!(matches!(router.state(), PluginState::Compiled { from_cache: false, .. }), "the cache was lost");
}

#[tokio::test]
async fn a_reload_shares_the_code_of_unchanged_components() {
    let folder = TempDir::new().unwrap();
    let runtime = runtime_in(folder.path());
    router(&runtime).compile().await.unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    let again = router(&runtime);
    again.compile().await.unwrap();
    assert!(matches!(again.state(), PluginState::Compiled { from_cache: true, .. }), "it was in memory");
    assert!(again.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
    // Plugins that are only checked change nothing; those that serve without it let it go.
    let others = load(&runtime, "tool", TOOL, fixture("tool"), everything()).unwrap();
    let checked = router(&runtime);
    checked.compile().await.unwrap();
    assert!(matches!(checked.state(), PluginState::Compiled { from_cache: true, .. }));
    runtime.retain(&others);
    let later = router(&runtime);
    later.compile().await.unwrap();
    assert!(matches!(later.state(), PluginState::Compiled { from_cache: false, .. }));
}

#[tokio::test]
async fn plugin_compiled_ahead_without_a_cache_stays_in_memory() {
    let router = router(&runtime_in(Path::new("/dev/null/cache")));
    router.compile_ahead().await.unwrap();
    assert!(matches!(router.state(), PluginState::Compiled { from_cache: false, .. }));
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
async fn old_plugins_keep_working_after_a_failed_reload() {
    let runtime = runtime();
    let old = load(&runtime, "router", ROUTER, fixture("router"), OperatorGrant::default()).unwrap();
    let bad = load(&runtime, "router", ROUTER, vec![], OperatorGrant::default());
    assert!(bad.is_err());
    let router = old.get("router").unwrap();
    assert!(router.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().is_ok());
}
