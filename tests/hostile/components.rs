//! Files that are no plugins, and components that are made to break what reads them.

use super::guests::install;
use crate::kit::admin::Admin;
use crate::kit::beside::Calm;
use crate::kit::client::Client;
use crate::kit::guests::built;
use crate::kit::host::{Setup, program};
use crate::kit::rogue::Rogue;
use serde_json::json;

/// Two packages that use resources of each other. A reader that orders packages by what they use does not end.
const CIRCLE: &str = "
    (import \"acme:a/x@0.2.0\" (instance $x (export \"t\" (type (sub resource)))))
    (alias export $x \"t\" (type $t))
    (import \"acme:b/y@0.2.0\" (instance $y (export \"t\" (type (eq $t))) (export \"u\" (type (sub resource)))))
    (alias export $y \"u\" (type $u))
    (import \"acme:a/z@0.2.0\" (instance (export \"u\" (type (eq $u)))))";

/// Types that contain the type before them once (`list`) or twice (`tuple`).
fn nested(levels: usize, of: fn(usize) -> String) -> String {
    (1..=levels).map(|level| format!("(type $t{level} {})", of(level - 1))).collect()
}

/// The files, each with a part of what is said of it.
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let text = |text: String| wat::parse_str(text).unwrap();
    let router = std::fs::read(built("router-own.wasm")).unwrap();
    let lists = nested(200, |before| format!("(list $t{before})"));
    let tuples = nested(40, |before| format!("(tuple $t{before} $t{before})"));
    let instances = "(core instance (instantiate $m))".repeat(1_001);
    vec![
        ("no bytes", Vec::new(), "is empty"),
        ("a text", b"#!/bin/sh\necho hello\n".to_vec(), "is not WebAssembly"),
        ("a gzip archive", [&[0x1f, 0x8b, 8, 0][..], &[0; 4096]].concat(), "is not WebAssembly"),
        ("a zip archive", [&b"PK\x03\x04"[..], &[0; 4096]].concat(), "is not WebAssembly"),
        ("a core module", text("(module)".to_owned()), "is a core module"),
        ("half a component", router[..router.len() / 2].to_vec(), "is damaged"),
        ("too many bytes", vec![0; 33 << 20], "33554432"),
        ("an empty component", text("(component)".to_owned()), "is a component of another world"),
        ("packages in a circle", text(format!("(component {CIRCLE})")), "is a component of another world"),
        ("lists of lists", text(format!("(component (type $t0 (list u8)) {lists})")), "is damaged"),
        ("pairs of pairs", text(format!("(component (type $t0 (list u8)) {tuples})")), "is damaged"),
        ("many instances", text(format!("(component (core module $m) {instances})")), "too many instances"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_plugin_is_refused_by_a_running_host_in_one_line() {
    let calm = Calm::start().await;
    let guests = tempfile::tempdir().unwrap();
    let host = Setup::new().config(&calm.config()).plugins(guests.path()).start();
    let (admin, watch) = (Admin::new(&host), calm.watch(&host).await);
    for (place, (what, bytes, says)) in files().into_iter().enumerate() {
        // Named anew each time: the log is written a moment after the count.
        let name = format!("router-bad-{place}");
        install(guests.path(), &name, "router", "[router]\nid = \"bad\"\n", &bytes);
        let refused = async {
            host.signal("HUP");
            admin.until_metric("cofferdam_reloads_refused_total", place as u64 + 1).await;
        };
        watch.beside(what, refused).await;
        host.until_logged(&name);
        let log = host.log();
        let line = log.lines().rev().find(|line| line.contains(&name)).unwrap();
        assert!(line.contains(says), "{what}: {line}");
        for end in ["wasm", "toml"] {
            std::fs::remove_file(guests.path().join(format!("{name}.{end}"))).unwrap();
        }
    }
    assert_eq!(Client::new(&host).get("/models").await.status, 200);
}

#[test]
fn a_file_that_is_no_plugin_is_inspected_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.wasm");
    for (what, bytes, says) in files() {
        std::fs::write(&file, bytes).unwrap();
        let output = program().args(["plugin", "inspect"]).arg(&file).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(output.status.code().is_some(), "{what}: {}: {told}", output.status);
        assert!(told.contains(says), "{what}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_a_gigabyte_is_refused_without_being_read() {
    let calm = Calm::start().await;
    let guests = tempfile::tempdir().unwrap();
    let host = Setup::new().config(&calm.config()).plugins(guests.path()).start();
    let (admin, watch) = (Admin::new(&host), calm.watch(&host).await);
    install(guests.path(), "router-bad", "router", "[router]\nid = \"bad\"\n", b"");
    let file = std::fs::OpenOptions::new().write(true).open(guests.path().join("router-bad.wasm")).unwrap();
    file.set_len(1 << 30).unwrap();
    let peak = peak_kib(host.pid());
    let refused = async {
        host.signal("HUP");
        admin.until_metric("cofferdam_reloads_refused_total", 1).await;
    };
    watch.beside("a file of a gigabyte", refused).await;
    let more = peak_kib(host.pid()) - peak;
    assert!(more < 256 << 10, "{more} KiB more than before");
}

/// The largest resident size that a process had.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_is_slow_to_compile_delays_only_its_own_requests() {
    let calm = Calm::start().await;
    let guests = tempfile::tempdir().unwrap();
    let host = Setup::new().config(&calm.config()).plugins(guests.path()).start();
    let (client, admin, watch) = (Client::new(&host), Admin::new(&host), calm.watch(&host).await);
    let table = format!("(block (br_table {} (i32.const 0)))", "0 ".repeat(65_000));
    let targets = format!("{} unreachable", table.repeat(28));
    let blocks = format!("{}{} unreachable", "block ".repeat(30_000), "end ".repeat(30_000));
    let values = format!(
        "{}{} drop unreachable",
        "i32.const 7 memory.size i32.mul ".repeat(10_000),
        "i32.add ".repeat(9_999)
    );
    for (place, (id, body)) in
        [("targets", targets), ("blocks", blocks), ("values", values)].iter().enumerate()
    {
        let guest = Rogue::of("request-hook").with_body("on-request@0.1.0#handle", body).build();
        let more = format!("[hook]\nid = \"{id}\"\nphases = [\"on-request\"]\n");
        install(guests.path(), &format!("hook-{id}"), "hook", &more, &guest);
        host.signal("HUP");
        admin.until_metric("cofferdam_reloads_total", place as u64 + 1).await;
        let request = json!({"model": "calm/m", "input": "x", "plugins": [{"id": id}]});
        let began = std::time::Instant::now();
        let answer = watch.beside(id, client.post("/responses", &request)).await;
        println!("{id}: {} after {:?}: {}", answer.status, began.elapsed(), answer.text);
        assert!(answer.status >= 500, "{id}: {}", answer.text);
    }
}
