//! Components that do not fit the contract are refused before compiling, with a message of one
//! line.

use std::path::Path;

use cofferdam_runtime::{OperatorGrant, component_of};

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
    let instances = "(core instance (instantiate $m))".repeat(1_001);
    let text = format!("(component (core module $m) {instances})");
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["too many instances"]);
    let types = "(type (func))".repeat(200_001);
    let text = format!("(component (core module {types}))");
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["a section of 200001 entries"]);
    let functions = "(func)".repeat(210_000);
    let text = format!("(component (core module {functions}))");
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["too many functions"]);
    let giant = format!("(component (core module (func {})))", "i32.const 1 drop ".repeat(800_000));
    says(&refusal("router", ROUTER, wat::parse_str(giant).unwrap()), &["has a function of"]);
}

/// Text of the types of a component whose packages use resources of each other.
fn packages_in_a_circle(first: &str, second: &str) -> String {
    format!(
        "(import \"{first}/x@0.2.0\" (instance $x (export \"t\" (type (sub resource)))))
         (alias export $x \"t\" (type $t))
         (import \"{second}/y@0.2.0\" (instance $y (export \"t\" (type (eq $t))) (export \"u\" (type (sub resource)))))
         (alias export $y \"u\" (type $u))
         (import \"{first}/z@0.2.0\" (instance (export \"u\" (type (eq $u)))))"
    )
}

#[test]
fn packages_that_use_types_of_each_other_are_refused_like_others() {
    let circle = packages_in_a_circle("acme:a", "acme:b");
    let component = wat::parse_str(format!("(component {circle})")).unwrap();
    says(&refusal("router", ROUTER, component), &["another world", "nothing at all"]);
    // WASI may be imported, and nothing says which of its packages use which.
    let circle = packages_in_a_circle("wasi:io", "wasi:cli");
    let instance = "(instance $i) (export \"cofferdam:plugin/routing@0.1.0\" (instance $i))";
    let component = wat::parse_str(format!("(component {circle} {instance})")).unwrap();
    says(&refusal("router", ROUTER, component), &["interface routing: function route is missing"]);
}

#[test]
fn types_without_end_are_refused_before_they_are_compared() {
    let nested: String = (1..=200).map(|level| format!("(type $t{level} (list $t{}))", level - 1)).collect();
    let text = format!("(component (type $t0 (list u8)) {nested})");
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["is damaged", "nesting is too deep"]);
    let doubled: String =
        (1..=40).map(|level| format!("(type $t{level} (tuple $t{0} $t{0}))", level - 1)).collect();
    let text = format!("(component (type $t0 (list u8)) {doubled})");
    says(
        &refusal("router", ROUTER, wat::parse_str(text).unwrap()),
        &["is damaged", "size exceeds the limit"],
    );
    let chained: String = (1..200)
        .map(|link| {
            format!(
                "(alias export $i{0} \"t\" (type $t{0}))
                 (import \"acme:p{link}/x\" (instance $i{link} (export \"t\" (type (eq $t{0})))))",
                link - 1
            )
        })
        .collect();
    let text = format!(
        "(component (import \"acme:p0/x\" (instance $i0 (export \"t\" (type (sub resource))))) {chained})"
    );
    says(&refusal("router", ROUTER, wat::parse_str(text).unwrap()), &["another world"]);
}

#[test]
fn worlds_that_a_module_brings_along_are_not_read() {
    let circle = packages_in_a_circle("acme:a", "acme:b");
    let world = format!(
        "(component (type $p (component (type $w (component {circle})) (export \"acme:evil/w\" (component (type $w)))))
         (export \"w\" (type $p)))"
    );
    let name = "component-type:w";
    let section =
        [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), &wat::parse_str(world).unwrap()].concat();
    let (low, high) = (section.len() % 128, section.len() / 128);
    let header = [0, u8::try_from(low).unwrap() | 128, u8::try_from(high).unwrap()];
    let module = Rogue::of("router").module();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let plain = component_of(&module, &wit, "router").unwrap();
    let (magic, sections) = module.split_at(8);
    for module in [[&module[..], &header, &section].concat(), [magic, &header, &section, sections].concat()] {
        assert_eq!(component_of(&module, &wit, "router").unwrap(), plain);
    }
}
