//! Components that do not fit the contract are refused before compiling, with a message of one
//! line.

use cofferdam_runtime::OperatorGrant;

use crate::kit::{HOOK, PROVIDER, ROUTER, TOOL, fixture, load, runtime};
use crate::rogue::{Rogue, Wit};

fn refusal(name: &str, manifest: &str, component: Vec<u8>) -> String {
    let error = load(&runtime(), name, manifest, component, OperatorGrant::default()).err().unwrap();
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    println!("{message}");
    message
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn files_that_are_not_components_are_refused() {
    says(&refusal("router", ROUTER, vec![]), &["router.toml", "router.wasm", "is empty"]);
    says(&refusal("router", ROUTER, b"hello, world, this is no wasm".to_vec()), &["is not WebAssembly"]);
    let module = wat::parse_str("(module)").unwrap();
    says(&refusal("router", ROUTER, module), &["core module", "wasm32-wasip2"]);
    says(&refusal("router", ROUTER, vec![0; 33 << 20]), &["has 34603008 bytes", "33554432"]);
    let mut cut = fixture("router");
    cut.truncate(cut.len() / 2);
    says(&refusal("router", ROUTER, cut), &["is damaged"]);
}

#[test]
fn random_damage_is_refused_or_harmless() {
    let intact = fixture("router");
    let runtime = runtime();
    for step in 1..40 {
        let mut damaged = intact.clone();
        let place = intact.len() * step / 40;
        damaged[place] ^= 0x55;
        // Damage in code or data does not violate the contract; the compiler finds it later.
        drop(load(&runtime, "router", ROUTER, damaged, OperatorGrant::default()));
    }
}

#[test]
fn components_of_another_world_are_refused() {
    says(&refusal("router", ROUTER, fixture("tool")), &["kind = \"router\"", "is a tool", "exports tools"]);
    says(&refusal("tool", TOOL, fixture("router")), &["kind = \"tool\"", "is a router"]);
    let stranger = wat::parse_str("(component)").unwrap();
    says(
        &refusal("router", ROUTER, stranger),
        &["another world", "nothing of cofferdam:plugin", "nothing at all"],
    );
    let request_hook = Rogue::of("request-hook").build();
    says(&refusal("hook", HOOK, request_hook), &["does not export the interface on-response"]);
}

#[test]
fn a_provider_needs_its_dialect_and_one_purpose() {
    let wit = Wit::own().with("export dialect;\n  export generation;\n}", "export generation;\n}");
    let no_dialect = Rogue::of("generation-provider").wit(wit).build();
    says(&refusal("provider", PROVIDER, no_dialect), &["does not export the interface dialect"]);
}

#[test]
fn an_added_case_is_reported_as_the_first_difference() {
    let wit = Wit::own().with("annotation(json),", "foo(string),\n    annotation(json),");
    let component = Rogue::of("provider").wit(wit).build();
    says(
        &refusal("provider", PROVIDER, component),
        &[
            "provider.toml (provider.wasm)",
            "world provider",
            "this host supports 0.1.0",
            "interface generation, variant event: case 4 is \"foo\", this host has \"annotation\"",
        ],
    );
}

#[test]
fn other_differences_are_reported_too() {
    let cases = [
        (
            "usage(usage),\n    finish",
            "finish",
            "variant event: case 16 is \"finish\", this host has \"usage\"",
        ),
        ("max-output: u32,\n", "max-output: u64,\n", "max-output: it is u64, this host has u32"),
        (
            "feed: func(frames: list<frame>)",
            "feed: func(frames: list<frame>, more: bool)",
            "it has 3 parameters, this host has 2",
        ),
        (
            "map-error: func(head: response-head, body: list<u8>)",
            "map-error: func(top: response-head, body: list<u8>)",
            "parameter 1 is \"top\"",
        ),
        ("finish: func() -> result<list<event>, failure>;", "", "function [method]decoder.finish is missing"),
        ("timeout,\n    unmapped,", "unmapped,\n    timeout,", "enum error-kind: case 26 is \"unmapped\""),
        (
            "unmapped,\n  }",
            "unmapped,\n    teapot,\n  }",
            "enum error-kind: case 28 is \"teapot\", this host has only 27",
        ),
        ("data: list<u8>,\n  }", "data: string,\n  }", "field 2 data: it is string, this host has a list"),
    ];
    for (from, to, expected) in cases {
        let component = Rogue::of("provider").wit(Wit::own().with(from, to)).build();
        says(&refusal("provider", PROVIDER, component), &[expected]);
    }
}

#[test]
fn components_that_are_slow_to_compile_are_refused() {
    let modules = "(core module)".repeat(200);
    says(
        &refusal("router", ROUTER, wat::parse_str(format!("(component {modules})")).unwrap()),
        &["core modules"],
    );
    let nested = "(component)".repeat(200);
    says(
        &refusal("router", ROUTER, wat::parse_str(format!("(component {nested})")).unwrap()),
        &["nested components"],
    );
    let functions = "(func)".repeat(210_000);
    let text = format!("(component (core module {functions}))");
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["too many functions"]);
    let giant = format!("(component (core module (func {})))", "i32.const 1 drop ".repeat(800_000));
    says(&refusal("router", ROUTER, wat::parse_str(giant).unwrap()), &["has a function of"]);
}
