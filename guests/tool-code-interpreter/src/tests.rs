use cofferdam_guest_kit::bindings::tools::{Guest, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::CodeInterpreter;
use super::console::LOGS_BYTES_MAX;
use super::script::{self, Ran};

const ROUND: &str = "Stopped: a loop went round too many times.";
const DEEP: &str = "Stopped: the code recursed too deeply.";
/// 2026-07-01 22:30:00.120 UTC.
const SUMMER_MS: u64 = 1_782_945_000_120;

/// Runs code with a loop limit that a debug build reaches within a second.
fn run(code: &str, now_ms: u64) -> Ran {
    script::run(code, now_ms, 100_000)
}

fn value(code: &str) -> String {
    let ran = run(code, SUMMER_MS);
    ran.value.unwrap_or_else(|| panic!("{code}: {:?}", ran.error))
}

fn error(code: &str) -> String {
    let ran = run(code, SUMMER_MS);
    ran.error.unwrap_or_else(|| panic!("{code}: {:?}", ran.value))
}

fn context() -> CallContext {
    CallContext { request_id: "resp_ab12".into(), workspace: "w".into(), now_ms: SUMMER_MS }
}

#[test]
fn the_last_expression_has_a_value() {
    let table = [
        ("1 + 1", "2"),
        ("'a' + 'b'", "ab"),
        ("let a = [1, 'two', null, undefined, true]; a", "[ 1, 'two', null, undefined, true ]"),
        ("({ a: 1, 'b c': [{}], f() {} })", "{ a: 1, 'b c': [ {} ], f: [Function: f] }"),
        ("class P { constructor() { this.x = 1 } } new P()", "P { x: 1 }"),
        ("Object.create(null)", "[null prototype] {}"),
        ("[1, , 3]", "[ 1, <empty>, 3 ]"),
        ("const o = {}; o.self = o; o", "{ self: [Circular] }"),
        ("({ get secret() { throw 1 } })", "{ secret: [Getter] }"),
        ("new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 } })", "[Proxy]"),
        ("10n ** 20n", "100000000000000000000n"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("new Date(Date.now()).toISOString().slice(0, 16)", "2026-07-01T22:30"),
        ("new Date(2026, 0, 1).toISOString()", "2026-01-01T00:00:00.000Z"),
        ("JSON.stringify({ a: [1, 2] })", "{\"a\":[1,2]}"),
        ("'x'.substr(0, 1)", "x"),
        ("eval('2 * 3')", "6"),
        ("[3, 1, 2].toSorted().join()", "1,2,3"),
        ("globalThis === this", "true"),
    ];
    for (code, expected) in table {
        assert_eq!(value(code), expected, "{code}");
    }
    for code in ["", "let a = 1", "undefined", "// nothing"] {
        assert_eq!(run(code, SUMMER_MS), Ran::default(), "{code}");
    }
}

#[test]
fn output_is_kept_in_order() {
    let ran = run("console.log('a', 1, { b: 'c' }); console.error('d'); console.log(); 7", SUMMER_MS);
    assert_eq!(ran.logs, "a 1 { b: 'c' }\nd\n\n");
    assert_eq!(ran.value.as_deref(), Some("7"));
}

#[test]
fn uncaught_errors_are_reported_after_the_output() {
    let ran = run("console.log('before'); null.x", SUMMER_MS);
    assert_eq!(ran.logs, "before\n");
    assert!(ran.error.unwrap().starts_with("Uncaught TypeError: "));
    let table = [
        ("throw new RangeError('too far')", "Uncaught RangeError: too far"),
        ("throw { code: 7 }", "Uncaught { code: 7 }"),
        ("throw 'text'", "Uncaught text"),
        ("let x = ;", "Uncaught SyntaxError: "),
        ("nothing_of_that_name", "Uncaught ReferenceError: "),
        ("require('fs')", "Uncaught ReferenceError: "),
        ("fetch('https://example.com')", "Uncaught ReferenceError: "),
        ("Promise.reject(new Error('later'))", "Uncaught Error: later"),
        ("(async () => { throw new Error('inside') })(); 1", "Uncaught Error: inside"),
        ("await Promise.reject(new TypeError('awaited'))", "Uncaught TypeError: awaited"),
    ];
    for (code, begin) in table {
        let error = error(code);
        assert!(error.starts_with(begin), "{code}: {error}");
    }
    assert!(error("import x from 'fs'; await 0").starts_with("Uncaught "));
    assert!(error("await import('fs')").starts_with("Uncaught "));
}

#[test]
fn promises_and_timers_come_to_their_end_without_waiting() {
    assert_eq!(value("Promise.resolve(5)"), "5");
    assert_eq!(value("(async () => { const a = await 1; return a + 1 })()"), "2");
    let pause = "new Promise(go => setTimeout(go, 3600000, 'late'))";
    assert_eq!(value(pause), "late");
    let ran = run(&format!("console.log(await {pause}); await null"), SUMMER_MS);
    assert_eq!((ran.logs.as_str(), ran.error), ("late\n", None));
    let order = "const a = []; setTimeout(() => a.push(2), 20); setTimeout(() => a.push(1), 10); \
        const id = setTimeout(() => a.push(9), 15); clearTimeout(id); \
        new Promise(go => setTimeout(() => go(a), 30))";
    assert_eq!(value(order), "[ 1, 2 ]");
    let clock = "const t = Date.now(); new Promise(go => setTimeout(() => go(Date.now() - t >= 5000), 5000))";
    assert_eq!(value(clock), "true");
    assert!(error("for (let i = 0; i < 10001; i++) setTimeout(() => {}, 1)").contains("too many timers"));
    assert!(error("setTimeout('code', 1)").contains("setTimeout takes a function"));
}

#[test]
fn code_that_awaits_at_top_level_has_a_value() {
    let table = [
        ("await 5", "5"),
        ("const a = await Promise.resolve(2);\na + 1", "3"),
        ("await 1; 'é🦀'; [1, 2].map(n => n * 2);", "[ 2, 4 ]"),
        ("await 1\r\nlet x = 'é🦀'; x + 'b' // the end", "é🦀b"),
        ("await 1; 7; const after = 8; var other = 9; function f() {};", "7"),
        ("await 1; 1, 2", "2"),
        ("await 1; (1, 3) ; ", "3"),
        ("await 1; async () => 1, { a: 1 }", "{ a: 1 }"),
        ("await 1; ({ a: await 2 })", "{ a: 2 }"),
        ("await 1; Promise.resolve(5)", "5"),
        ("await 1; new Promise(go => setTimeout(go, 1000, 'late'))", "late"),
        ("await 1; `a\nb`", "a\nb"),
        ("await 1; [1].concat(2)", "[ 1, 2 ]"),
        ("await 1; String.raw`x`.length", "1"),
        ("await 1; () => 1", "[Function: (anonymous)]"),
        ("const f = async n => n; await f(1); 'é🦀'; f(2)", "2"),
        ("await 1; this", "undefined"),
    ];
    for (code, expected) in table {
        let ran = run(code, SUMMER_MS);
        assert_eq!(ran.value.as_deref().unwrap_or("undefined"), expected, "{code}: {:?}", ran.error);
        assert_eq!(ran.error, None, "{code}");
    }
    assert_eq!(value("await new Promise(() => {}); 1"), "Promise { <pending> }");
    for code in ["await 1; let a = 1", "await 1; undefined", "export default 5; await 1; 6"] {
        let ran = run(code, SUMMER_MS);
        assert!(ran.error.is_none() && ran.value.is_none_or(|value| value != "6"), "{code}");
    }
    assert!(error("await 1; null.x").starts_with("Uncaught TypeError"));
    assert!(error("await 1; Promise.reject(new RangeError('no'))").starts_with("Uncaught RangeError: no"));
}

/// Statements with something before the last expression, in many spellings. Each may occur once in
/// any code.
const STATEMENTS: [&str; 20] = [
    "[1, 2].map(n => n * 2)",
    "'é🦀'.concat('b').length + 1",
    "String.raw`a\nb${1}é`.at(0)",
    "Math.max(1, 2), [3].concat(4)",
    "(1, 3)",
    "({ a: [7].at(0) })",
    "async () => 1",
    "x => x",
    "state.list.at(0).n = 5",
    "state['list'].at(0).n++",
    "state?.list?.at(0)",
    "[state.n] = [9]",
    "console.log('said')",
    "new Map([[1, 2]]).get(1) ? /x/.source : 'ß'",
    "'é'; const a = 1",
    "8; var b = 2",
    "function f() { return 'ü' }",
    "{}",
    "if (true) { 'branch' }",
    "",
];
const SEPARATORS: [&str; 8] =
    [";", ";\n", " ;\r\n", ";\r", "; // é🦀\n", "; /* 🦀\n */", ";\u{2028}", " ; \u{2029}"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Code with `await` has the same value and output as the same code without it, as a script.
    #[test]
    fn a_module_has_the_value_of_the_same_script(
        chosen in proptest::sample::subsequence(&STATEMENTS[..], 0..STATEMENTS.len()).prop_shuffle(),
        separators in proptest::collection::vec(proptest::sample::select(&SEPARATORS[..]), STATEMENTS.len()),
        last in proptest::sample::select(&STATEMENTS[..14]),
    ) {
        let mut code = "let state = { n: 1, list: [{ n: 2 }] };".to_owned();
        for (statement, separator) in chosen.into_iter().zip(&separators) {
            code = format!("{code}{statement}{separator}");
        }
        code.push_str(last);
        let ran = run(&format!("{code}{}", separators[0]), SUMMER_MS);
        let awaited = run(&format!("await 'é🦀';{code}{}", separators[0]), SUMMER_MS);
        prop_assert_eq!(awaited, ran, "{}", code);
    }
}

#[test]
fn endless_loops_and_recursion_end_and_keep_the_output() {
    let ran = run("console.log('begin'); while (true) {}", SUMMER_MS);
    assert_eq!(ran.logs, "begin\n");
    assert_eq!(ran.error.unwrap(), ROUND);
    assert_eq!(error("function f() { return f() + 1 } f()"), DEEP);
    assert_eq!(value("function f(n) { return n ? f(n - 1) + 1 : 0 } f(4000)"), "4000");
    // Code cannot catch the error of a limit and continue.
    assert_eq!(error("while (true) { try { while (true) {} } catch { } }"), ROUND);
    assert_eq!(error("const again = () => setTimeout(again, 1); again(); for (;;) {}"), ROUND);
}

#[test]
fn output_is_bounded() {
    let ran = run("for (let i = 0; i < 20000; i++) console.log('0123456789')", SUMMER_MS);
    assert!(ran.logs.len() < LOGS_BYTES_MAX + 100, "{}", ran.logs.len());
    assert!(ran.logs.ends_with("was left out.]"));
    assert!(value("Array.from({ length: 1000 }, (_, i) => i)").contains("... 800 more"));
    assert!(value("'x'.repeat(90000)").len() < 30_000);
    assert!(value("({ long: 'x'.repeat(90000) })").len() < 30_000);
    assert!(
        value("Object.fromEntries(Array.from({ length: 1000 }, (_, i) => ['k' + i, 'v'.repeat(100)]))").len()
            < 40_000
    );
    assert_eq!(
        value("let o = {}; let d = o; for (let i = 0; i < 10000; i++) d = d.n = {}; o").matches('{').count(),
        6
    );
    let printed = run(
        "const a = 'x'.repeat(99990); console.log(a); console.log('äöüß'.repeat(10)); console.log('z')",
        0,
    );
    assert!(!printed.logs.contains('z'));
}

#[test]
fn changed_prototypes_do_not_affect_the_answer() {
    let table = [
        "Object.prototype.toString = () => { throw 1 }; ({ a: 1 })",
        "Array.prototype.join = null; Array.prototype[Symbol.iterator] = null; ({ a: 1 })",
        "Object.prototype.toJSON = () => 'x'; Promise.prototype.then = null; ({ a: 1 })",
        "delete globalThis.Object; delete globalThis.JSON; ({ a: 1 })",
        "Object.freeze(Object.prototype); Object.defineProperty(Object.prototype, 'constructor', { get() { throw 1 } }); ({ a: 1 })",
    ];
    for code in table {
        let ran = run(code, SUMMER_MS);
        assert!(ran.value.as_deref() == Some("{ a: 1 }") || ran.error.is_some(), "{code}: {ran:?}");
    }
    assert_eq!(run("console = null; 1", SUMMER_MS).value.as_deref(), Some("1"));
    let error =
        error("class E extends Error { get message() { throw 1 } get name() { throw 2 } } throw new E('x')");
    assert!(error.starts_with("Uncaught "), "{error}");
    assert!(super::tests::error("throw new Proxy(new Error('x'), {})").starts_with("Uncaught [Proxy]"));
}

#[test]
fn a_call_gives_an_item_and_text_for_the_model() {
    let invoke_for = |settings: &str, code: &str| {
        let arguments = json!({ "code": code }).to_string().into_bytes();
        let settings = settings.as_bytes().to_vec();
        CodeInterpreter::invoke("code_interpreter".into(), arguments, settings, context()).unwrap()
    };
    let invoke = |code: &str| invoke_for(r#"{"type":"code_interpreter","container":{"type":"auto"}}"#, code);
    let output = invoke("console.log('hi'); 6 * 7");
    assert_eq!(output.for_model, "hi\n=> 42");
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    let outputs = json!([{"type": "logs", "logs": "hi\n"}, {"type": "logs", "logs": "42"}]);
    assert_eq!(
        item,
        json!({"code": "console.log('hi'); 6 * 7", "container_id": "cntr_ab12", "outputs": outputs})
    );
    let item: Value = serde_json::from_slice(&invoke_for("{}", "console.log('hi'); throw 7").item).unwrap();
    assert_eq!(
        item,
        json!({"code": "console.log('hi'); throw 7", "language": "javascript", "stdout": "hi\n",
            "stderr": "Uncaught 7", "exit_code": 1})
    );
    assert_eq!(invoke("let x").for_model, "(The code ran and printed nothing.)");
    assert_eq!(invoke("throw 'no'").for_model, "Uncaught no");
    for (arguments, message) in [
        (json!({}), "code is required"),
        (json!({ "code": 7 }), "code must be a string"),
        (json!({ "code": "x".repeat(300_000) }), "code may have at most 262144 bytes"),
    ] {
        let arguments = arguments.to_string().into_bytes();
        let refused =
            CodeInterpreter::invoke("code_interpreter".into(), arguments, b"{}".to_vec(), context());
        assert!(matches!(refused, Err(ToolError::InvalidArguments(text)) if text == message), "{message}");
    }
}

#[test]
fn the_offer_names_the_language_and_the_first_item() {
    let offer = |settings: &str| CodeInterpreter::functions(settings.as_bytes().to_vec(), context());
    let clients = json!({"code": "", "container_id": "cntr_ab12", "outputs": null});
    for (settings, begin) in [
        ("{}", json!({"code": "", "language": "javascript"})),
        (r#"{"type":"code_interpreter","container":{"type":"auto","file_ids":[]}}"#, clients.clone()),
        (r#"{"type":"code_interpreter","container":"cntr_1"}"#, clients),
    ] {
        let functions = offer(settings).unwrap();
        assert!(functions[0].description.starts_with("Runs JavaScript"));
        let parameters: Value = serde_json::from_slice(&functions[0].parameters).unwrap();
        assert_eq!(parameters["x-item"], begin);
    }
    let files = r#"{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"]}}"#;
    let refused = offer(files).unwrap_err();
    assert!(
        matches!(refused, ToolError::InvalidSettings(text) if text.starts_with("parameters.container.file_ids names files"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_run_or_refused(code in "[a-z0-9{}()\\[\\];=+'\"`$.,!<>/ \\n-]{0,60}") {
        run(&code, SUMMER_MS);
    }
}
