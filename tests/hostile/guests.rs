//! Guests that no ordinary toolchain builds, in every world. Each ends with the error that clients know for its kind
//! of plugin.

use crate::kit::admin::Admin;
use crate::kit::beside::Calm;
use crate::kit::client::Client;
use crate::kit::host::Setup;
use crate::kit::rogue::{LOOP, Rogue, TRAP};
use serde_json::{Value, json};
use std::path::Path;

/// What a guest does, and the kinds of errors by which it may be stopped.
struct Deed {
    name: &'static str,
    kinds: &'static [&'static str],
    stage: Stage,
    /// Makes the functions with these names do it.
    make: fn(Rogue, &str) -> Rogue,
}

/// When a guest is stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not compiled.
    Compile,
    /// Before any of its functions is called.
    Start,
    Call,
}

const LOG: &str = "(import \"cofferdam:plugin/log@0.1.0\" \"write\" (func $log (param i32 i32 i32)))";
const SETTINGS: &str = "(import \"cofferdam:plugin/config@0.1.0\" \"settings\" (func $settings (param i32)))";
const GROW: &str = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable";
const GROW_AT_ONCE: &str =
    "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 65535)) (i32.const -1)))) unreachable";
const GROW_TABLE: &str = "(loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 10000)) (i32.const -1)))) unreachable";
const COPY: &str =
    "(loop $l (memory.copy (i32.const 0) (i32.const 33554432) (i32.const 33554432)) (br $l)) unreachable";
const FLOOD_LOG: &str =
    "(loop $l (call $log (i32.const 3) (i32.const 0) (i32.const 64)) (br $l)) unreachable";
const LONG_LINE: &str = "(call $log (i32.const 3) (i32.const 0) (i32.const 62914560)) unreachable";
const INVALID_LINE: &str = "(i32.store (i32.const 64) (i32.const -1)) (call $log (i32.const 3) (i32.const 64) (i32.const 4)) unreachable";
const LINE_BEYOND: &str = "(call $log (i32.const 3) (i32.const -16) (i32.const 4096)) unreachable";
const LEVEL_BEYOND: &str = "(call $log (i32.const 77) (i32.const 0) (i32.const 0)) unreachable";
const FLOOD_CALLS: &str = "(loop $l (call $settings (i32.const 128)) (br $l)) unreachable";

const MEMORY: &[&str] = &["out_of_memory", "out_of_time"];
const TIME: &[&str] = &["out_of_time"];
const VALUE: &[&str] = &["invalid_value", "out_of_bounds", "other"];

static DEEDS: [Deed; 24] = [
    Deed { name: "loop", stage: Stage::Call, kinds: TIME, make: |guest, of| guest.with_body(of, LOOP) },
    Deed {
        name: "start",
        stage: Stage::Start,
        kinds: TIME,
        make: |guest, _| guest.plus("(func $s (loop $l (br $l))) (start $s)"),
    },
    Deed {
        name: "initialize",
        stage: Stage::Start,
        kinds: TIME,
        make: |guest, _| guest.plus("(func (export \"_initialize\") (loop $l (br $l)))"),
    },
    Deed { name: "realloc", stage: Stage::Call, kinds: TIME, make: |guest, _| guest.realloc(LOOP) },
    Deed {
        name: "copy",
        stage: Stage::Call,
        kinds: TIME,
        make: |guest, of| guest.memory("(memory (export \"memory\") 1024)").with_body(of, COPY),
    },
    Deed {
        name: "recurse",
        stage: Stage::Call,
        kinds: &["stack_overflow"],
        make: |guest, of| guest.plus("(func $f (call $f))").with_body(of, "call $f unreachable"),
    },
    Deed {
        name: "trap",
        stage: Stage::Call,
        kinds: &["unreachable"],
        make: |guest, of| guest.with_body(of, TRAP),
    },
    Deed { name: "steps", stage: Stage::Call, kinds: MEMORY, make: |guest, of| guest.with_body(of, GROW) },
    Deed {
        name: "atonce",
        stage: Stage::Call,
        kinds: MEMORY,
        make: |guest, of| guest.with_body(of, GROW_AT_ONCE),
    },
    Deed {
        name: "minimum",
        stage: Stage::Start,
        kinds: &["out_of_memory", "compile"],
        make: |guest, _| guest.memory("(memory (export \"memory\") 3000)"),
    },
    Deed {
        name: "memories",
        stage: Stage::Start,
        kinds: &["out_of_memory", "compile"],
        make: |guest, _| guest.memory("(memory (export \"memory\") 1500) (memory 1500)"),
    },
    Deed {
        name: "table",
        stage: Stage::Call,
        kinds: MEMORY,
        make: |guest, of| guest.plus("(table 1 funcref)").with_body(of, GROW_TABLE),
    },
    Deed {
        name: "hugetable",
        stage: Stage::Compile,
        kinds: &["out_of_memory", "compile"],
        make: |guest, _| guest.plus("(table 10000000 funcref)"),
    },
    Deed {
        name: "tables",
        stage: Stage::Compile,
        kinds: &["out_of_memory", "compile"],
        make: |guest, _| guest.plus(&"(table 1 funcref)".repeat(20)),
    },
    Deed {
        name: "beyond",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.with_body(of, "i32.const -4"),
    },
    Deed {
        name: "misaligned",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.with_body(of, "i32.const 1025"),
    },
    Deed {
        name: "variant",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.plus("(data (i32.const 16384) \"\\07\")").with_body(of, "i32.const 16384"),
    },
    Deed {
        name: "logflood",
        stage: Stage::Call,
        kinds: &["too_many_host_calls", "out_of_time"],
        make: |guest, of| guest.importing(LOG).with_body(of, FLOOD_LOG),
    },
    Deed {
        name: "longline",
        stage: Stage::Call,
        kinds: &["output_too_large"],
        make: |guest, of| {
            guest.importing(LOG).memory("(memory (export \"memory\") 1024)").with_body(of, LONG_LINE)
        },
    },
    Deed {
        name: "invalidline",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.importing(LOG).with_body(of, INVALID_LINE),
    },
    Deed {
        name: "linebeyond",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.importing(LOG).with_body(of, LINE_BEYOND),
    },
    Deed {
        name: "levelbeyond",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, of| guest.importing(LOG).with_body(of, LEVEL_BEYOND),
    },
    Deed {
        name: "callflood",
        stage: Stage::Call,
        kinds: &["too_many_host_calls", "out_of_time"],
        make: |guest, of| guest.importing(SETTINGS).with_body(of, FLOOD_CALLS),
    },
    // The host is in the middle of handing over the arguments, and is called.
    Deed {
        name: "reenter",
        stage: Stage::Call,
        kinds: VALUE,
        make: |guest, _| {
            guest.importing(SETTINGS).realloc("(call $settings (i32.const 128)) i32.const 65536")
        },
    },
];

/// A kind of plugin, in the world of which the deeds are tried.
struct World {
    name: &'static str,
    /// The plugin's name without its deed.
    plugin: &'static str,
    kind: &'static str,
    /// The function that does it.
    function: &'static str,
    manifest: fn(&str) -> String,
    config: fn(&str) -> String,
    request: fn(&str) -> Value,
    status: u16,
    /// The status if the guest is stopped before any of its functions is called.
    status_at_start: u16,
}

impl World {
    /// The deeds that are tried: a host does not start with a provider that does not compile.
    fn deeds(&self) -> impl Iterator<Item = &'static Deed> {
        let is_needed = self.kind == "provider";
        DEEDS.iter().filter(move |deed| !is_needed || deed.stage != Stage::Compile)
    }
}

const PROVIDER: World = World {
    name: "generation-provider",
    plugin: "provider",
    kind: "provider",
    function: "generation@0.1.0#prepare",
    manifest: |_| String::new(),
    config: |deed| {
        format!(
            "[[providers]]\nname = \"{deed}\"\nadapter = \"{deed}\"\n[[models]]\nid = \"evil/{deed}\"\n\
             endpoints = [{{ provider = \"{deed}\", model = \"m\" }}]\n"
        )
    },
    request: |deed| json!({"model": format!("evil/{deed}"), "input": "x"}),
    status: 502,
    status_at_start: 502,
};

const HOOK: World = World {
    name: "request-hook",
    plugin: "hook",
    kind: "hook",
    function: "on-request@0.1.0#handle",
    manifest: |deed| format!("[hook]\nid = \"{deed}\"\nphases = [\"on-request\"]\n"),
    config: |_| String::new(),
    request: |deed| json!({"model": "calm/m", "input": "x", "plugins": [{"id": deed}]}),
    status: 500,
    status_at_start: 500,
};

const TOOL: World = World {
    name: "tool",
    plugin: "tool",
    kind: "tool",
    function: "tools@0.1.0#functions",
    manifest: |deed| format!("[tool]\ntype = \"{deed}\"\n"),
    config: |_| String::new(),
    request: |deed| json!({"model": "calm/m", "input": "x", "tools": [{"type": format!("service:{deed}")}]}),
    status: 500,
    status_at_start: 500,
};

const MODEL_ROUTER: World = World {
    name: "model-router",
    plugin: "router",
    kind: "router",
    function: "model-choice@0.1.0#choose",
    manifest: |deed| format!("[router]\nid = \"{deed}\"\n"),
    config: |_| String::new(),
    request: |deed| json!({"model": format!("service/{deed}"), "input": "x"}),
    status: 500,
    // It does not say its names.
    status_at_start: 404,
};

/// A component whose function does the deed.
fn component(world: &World, deed: &Deed) -> Vec<u8> {
    let guest = Rogue::of(world.name);
    let guest = if world.name == "model-router" { offering(guest, deed.name) } else { guest };
    (deed.make)(guest, world.function).build()
}

/// A model router that offers the model `service/NAME`.
pub fn offering(guest: Rogue, name: &str) -> Rogue {
    let words = |words: [u32; 2]| -> String {
        words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect()
    };
    let length = u32::try_from(name.len()).unwrap();
    guest
        .plus(&format!("(data (i32.const 1024) \"{}{}{name}\")", words([1032, 1]), words([1040, length])))
        .with_body("model-choice@0.1.0#slugs", "i32.const 1024")
}

pub fn install(folder: &Path, plugin: &str, kind: &str, more: &str, component: &[u8]) {
    let manifest = format!(
        "name = \"{plugin}\"\nkind = \"{kind}\"\nversion = \"1.0.0\"\ndescription = \"A hostile guest.\"\n{more}\
         [limits]\nmemory_mib = 128\ndeadline_ms = 100\n"
    );
    std::fs::write(folder.join(format!("{plugin}.wasm")), component).unwrap();
    std::fs::write(folder.join(format!("{plugin}.toml")), manifest).unwrap();
}

/// How often calls of a plugin ended with one of these kinds of errors.
async fn counted(admin: &Admin, plugin: &str, kinds: &[&str]) -> u64 {
    let mut sum = 0;
    for kind in kinds {
        let labels = format!("plugin=\"{plugin}\",kind=\"{kind}\"");
        sum += admin.metric(&format!("cofferdam_plugin_errors_total{{{labels}}}")).await;
    }
    sum
}

/// Tries all deeds in one world, each as a plugin of its own.
async fn misbehave_in(world: World) {
    let calm = Calm::start().await;
    let guests = tempfile::tempdir().unwrap();
    let mut setup = Setup::new().config(&calm.config());
    for deed in world.deeds() {
        let plugin = format!("{}-{}", world.plugin, deed.name);
        let more = (world.manifest)(deed.name);
        install(guests.path(), &plugin, world.kind, &more, &component(&world, deed));
        setup = setup.config(&(world.config)(deed.name));
    }
    let host = setup.plugins(guests.path()).start();
    let (client, admin, watch) = (Client::new(&host), Admin::new(&host), calm.watch(&host).await);
    let mut wrong = Vec::new();
    for deed in world.deeds() {
        let (plugin, request) = (format!("{}-{}", world.plugin, deed.name), (world.request)(deed.name));
        let what = format!("{} in {}", deed.name, world.name);
        let answer = watch.beside(&what, client.post("/responses", &request)).await;
        let stopped = counted(&admin, &plugin, deed.kinds).await > 0;
        println!("{what}: {} {}", answer.status, answer.text);
        let is_right = match deed.stage {
            Stage::Compile => answer.status >= 400,
            Stage::Start => stopped && answer.status == world.status_at_start,
            Stage::Call => stopped && answer.status == world.status,
        };
        if !is_right {
            let metrics = admin.get("/metrics").await.text;
            let is_error =
                |line: &&str| line.contains("plugin_errors") && line.contains(&format!("\"{plugin}\""));
            wrong.push(format!(
                "{what}: {} {:?}",
                answer.text,
                metrics.lines().filter(is_error).collect::<Vec<_>>()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_misbehaves_fails_its_own_request_only() {
    misbehave_in(PROVIDER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_misbehaves_fails_its_own_request_only() {
    misbehave_in(HOOK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_misbehaves_fails_its_own_request_only() {
    misbehave_in(TOOL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_router_that_misbehaves_fails_its_own_request_only() {
    misbehave_in(MODEL_ROUTER).await;
}
