//! Where the results of calls stand among the messages.

use super::{messages, text};

fn call(id: &str) -> String {
    format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#)
}

fn output(id: &str, text: &str) -> String {
    format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"{text}"}}"#)
}

fn calling(content: &str, ids: &[&str]) -> String {
    let called = |id: &&str| {
        format!(r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}"#)
    };
    let calls: Vec<_> = ids.iter().map(called).collect();
    format!(r#"{{"role":"assistant","content":{content},"tool_calls":[{}]}}"#, calls.join(","))
}

fn said(role: &str, text: &str) -> String {
    format!(r#"{{"role":"{role}","content":"{text}"}}"#)
}

fn tool(id: &str, text: &str) -> String {
    format!(r#"{{"role":"tool","content":"{text}","tool_call_id":"{id}"}}"#)
}

fn missing(id: &str) -> String {
    tool(id, "No result of this call was recorded.")
}

#[track_caller]
fn assert_become(items: &[String], expected: &[String]) {
    assert_eq!(messages(&items.join(",")), expected.join(","));
}

#[test]
fn a_message_between_a_call_and_its_result_comes_after_the_result() {
    assert_become(
        &[text("user", "q"), call("a"), call("b"), output("a", "1"), text("user", "pic"), output("b", "2")],
        &[
            said("user", "q"),
            calling("null", &["a", "b"]),
            tool("a", "1"),
            tool("b", "2"),
            said("user", "pic"),
        ],
    );
    assert_become(
        &[text("user", "q"), call("a"), text("developer", "d"), text("user", "u"), output("a", "1")],
        &[said("user", "q"), calling("null", &["a"]), tool("a", "1"), said("system", "d"), said("user", "u")],
    );
    // The calls of two turns.
    assert_become(
        &[call("a"), text("user", "u"), call("b"), output("b", "2"), output("a", "1")],
        &[
            calling("null", &["a"]),
            tool("a", "1"),
            said("user", "u"),
            calling("null", &["b"]),
            tool("b", "2"),
        ],
    );
}

#[test]
fn a_result_before_its_call_comes_after_it() {
    assert_become(
        &[output("a", "1"), text("user", "q"), call("a")],
        &[said("user", "q"), calling("null", &["a"]), tool("a", "1")],
    );
    // Without the result between them, two messages of the model are one.
    assert_become(
        &[text("assistant", "A"), output("a", "1"), text("assistant", "B"), call("a"), text("user", "q")],
        &[calling(r#""A\n\nB""#, &["a"]), tool("a", "1"), said("user", "q")],
    );
    assert_become(
        &[
            call("a"),
            call("b"),
            output("b", "2"),
            text("assistant", "A"),
            output("a", "1"),
            text("assistant", "B"),
        ],
        &[calling("null", &["a", "b"]), tool("a", "1"), tool("b", "2"), said("assistant", r"A\n\nB")],
    );
}

#[test]
fn a_call_without_a_result_gets_one() {
    assert_become(
        &[call("a"), call("b"), output("b", "2"), text("user", "q")],
        &[calling("null", &["a", "b"]), missing("a"), tool("b", "2"), said("user", "q")],
    );
    assert_become(
        &[text("user", "q"), call("a")],
        &[said("user", "q"), calling("null", &["a"]), missing("a")],
    );
}

#[test]
fn a_result_without_a_call_is_text() {
    let earlier = |text: &str| said("user", &format!(r"Result of an earlier tool call:\n{text}"));
    assert_become(
        &[
            output("x", "0"),
            call("a"),
            output("y", " "),
            output("z", "9"),
            output("a", "1"),
            output("a", "2"),
        ],
        &[earlier("0"), calling("null", &["a"]), tool("a", "1"), earlier("9"), earlier("2")],
    );
}

#[test]
fn an_id_may_come_again() {
    // Some servers count the calls of each answer from the same number.
    assert_become(
        &[call("a"), text("user", "stop"), call("a"), output("a", "2")],
        &[
            calling("null", &["a"]),
            missing("a"),
            said("user", "stop"),
            calling("null", &["a"]),
            tool("a", "2"),
        ],
    );
    assert_become(
        &[
            output("a", "0"),
            call("a"),
            output("a", "1"),
            call("a"),
            call("a"),
            output("a", "2"),
            output("a", "3"),
        ],
        &[
            said("user", r"Result of an earlier tool call:\n0"),
            calling("null", &["a"]),
            tool("a", "1"),
            calling("null", &["a", "a"]),
            tool("a", "2"),
            tool("a", "3"),
        ],
    );
}

#[test]
fn results_behind_their_calls_keep_their_order() {
    assert_become(
        &[call("a"), call("b"), output("b", "2"), output("a", "1"), call("a"), output("a", "3")],
        &[
            calling("null", &["a", "b"]),
            tool("b", "2"),
            tool("a", "1"),
            calling("null", &["a"]),
            tool("a", "3"),
        ],
    );
}

#[test]
fn a_long_history_may_have_one_id_for_all_calls() {
    let results = (0..20_000).map(|_| output("a", "1"));
    let calls = (0..20_000).map(|_| call("a"));
    let items: Vec<_> = results.chain([text("user", "q")]).chain(calls).collect();
    let arranged = messages(&items.join(","));
    assert_eq!(arranged.matches(&tool("a", "1")).count(), 20_000);
}
