use cofferdam_guest_kit::bindings::tools::Guest;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ApplyPatch, CallContext, ToolError};

fn context() -> CallContext {
    CallContext { request_id: "resp_1".into(), workspace: "w".into(), now_ms: 0 }
}

fn invoke(arguments: &Value) -> Result<Value, String> {
    let arguments = arguments.to_string().into_bytes();
    match ApplyPatch::invoke("apply_patch".into(), arguments, b"{}".to_vec(), context()) {
        Ok(output) => Ok(serde_json::from_slice::<Value>(&output.item).unwrap()["operation"].clone()),
        Err(ToolError::InvalidArguments(message)) => Err(message),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn well_formed_operations_pass_as_they_are() {
    for operation in [
        json!({"type": "create_file", "path": "src/a.js", "diff": "+let a\n+\n+let b\n"}),
        json!({"type": "create_file", "path": "empty", "diff": ""}),
        json!({"type": "update_file", "path": "a", "diff": "@@ fn main\n context\n-old\n+new\n\n*** End of File\n"}),
        json!({"type": "update_file", "path": "a", "diff": "-gone"}),
        json!({"type": "delete_file", "path": "a b/c"}),
    ] {
        assert_eq!(invoke(&operation), Ok(operation.clone()));
        assert_eq!(invoke(&json!({ "operation": operation })), Ok(operation));
    }
    let with_diff = json!({"type": "delete_file", "path": "a", "diff": "-x"});
    assert_eq!(invoke(&with_diff), Ok(json!({"type": "delete_file", "path": "a"})));
}

#[test]
fn wrong_arguments_are_named() {
    let table = [
        (json!({}), "type must be a string that is not empty"),
        (
            json!({"type": "move_file", "path": "a"}),
            "type must be one of create_file, update_file, delete_file",
        ),
        (json!({"type": "delete_file"}), "path must be a path of 1 to 1024 bytes"),
        (json!({"type": "delete_file", "path": 7}), "path must be a string"),
        (json!({"type": "delete_file", "path": "../a"}), "path must not have empty names, . or .."),
        (
            json!({"type": "delete_file", "path": "/etc/passwd"}),
            "path must be relative and have / between names, such as src/main.js",
        ),
        (
            json!({"type": "delete_file", "path": "a\\..\\b"}),
            "path must be relative and have / between names, such as src/main.js",
        ),
        (
            json!({"type": "delete_file", "path": "a\u{202e}"}),
            "path must not hold characters that cannot be seen",
        ),
        (json!({"type": "create_file", "path": "a"}), "diff is required for create_file"),
        (json!({"type": "update_file", "path": "a", "diff": null}), "diff is required for update_file"),
        (
            json!({"type": "create_file", "path": "a", "diff": "let a"}),
            "diff must have + in front of every line of the new file",
        ),
        (
            json!({"type": "update_file", "path": "a", "diff": "let a\n+x"}),
            "diff must have a space, + or - in front of every line, and @@ in front of every hunk",
        ),
        (
            json!({"type": "update_file", "path": "a", "diff": "@@\n same\n"}),
            "diff must add or remove at least one line",
        ),
        (
            json!({"type": "update_file", "path": "a", "diff": "*** Begin Patch\n+x"}),
            "diff must hold the hunks alone, without *** Begin Patch and *** Update File",
        ),
        (
            json!({"type": "update_file", "path": "a", "diff": "+".repeat(2 << 20)}),
            "diff may have at most 1048576 bytes",
        ),
        (json!({"operation": 7}), "operation must be an object"),
    ];
    for (arguments, message) in table {
        assert_eq!(invoke(&arguments), Err(message.to_owned()));
    }
}

#[test]
fn engines_are_those_of_the_interface() {
    let offer = |settings: &str| ApplyPatch::functions(settings.as_bytes().to_vec(), context());
    for settings in ["{}", r#"{"engine":"openrouter"}"#, r#"{"type":"apply_patch"}"#] {
        assert_eq!(offer(settings).unwrap()[0].name, "apply_patch");
    }
    assert!(
        matches!(offer(r#"{"engine":"x"}"#), Err(ToolError::InvalidSettings(text)) if text.starts_with("parameters.engine"))
    );
}

proptest! {
    #[test]
    fn any_operation_is_taken_or_refused(kind in "create_file|update_file|delete_file|x", path in "\\PC{0,20}", diff in "[-+@ *\\na]{0,40}") {
        drop(invoke(&json!({"type": kind, "path": path, "diff": diff})));
    }
}
