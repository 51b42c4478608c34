use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::shelf::{FILE_BYTES_MAX, FILES_MAX, Full, Keep, Shelf};
use super::{CallContext, Fields, Files, Guest, ToolError, act};

/// A storage with the limits of the host.
#[derive(Default)]
struct Memory(BTreeMap<String, Vec<u8>>);

impl Keep for Memory {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Full> {
        if key.is_empty() || key.len() > 128 {
            return Err(Full::Key);
        }
        let others: usize =
            self.0.iter().filter(|(other, _)| *other != key).map(|(_, value)| value.len()).sum();
        if others + value.len() > 1024 * 1024 {
            return Err(Full::Bytes);
        }
        self.0.insert(key.to_owned(), value.to_vec());
        Ok(())
    }
}

/// A sequence of calls of the tool.
struct Session(Shelf<Memory>);

impl Session {
    fn new() -> Self {
        Self(Shelf::new(Memory::default()))
    }

    /// The text that the model gets, and the item.
    fn call(&mut self, function: &str, arguments: &Value) -> Result<(String, Value), String> {
        let arguments = Fields::arguments(arguments.to_string().as_bytes()).unwrap();
        match act(&mut self.0, function, &arguments) {
            Ok(output) => Ok((output.for_model, serde_json::from_slice(&output.item).unwrap())),
            Err(ToolError::InvalidArguments(message) | ToolError::Failed(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn told(&mut self, function: &str, arguments: &Value) -> String {
        self.call(function, arguments).unwrap().0
    }
}

fn write(filename: &str, content: &str) -> Value {
    json!({ "filename": filename, "content": content })
}

#[test]
fn files_are_written_read_changed_and_listed() {
    let mut session = Session::new();
    assert_eq!(session.told("files_list", &json!({})), "There are no files yet.");
    let (told, item) = session.call("files_write", &write("notes/a.md", "one\ntwo\nthree\n")).unwrap();
    assert_eq!(told, "Wrote 14 bytes to notes/a.md.");
    let id = item["file_id"].clone();
    assert!(id.as_str().unwrap().starts_with("file_"));
    assert_eq!(item, json!({"operation": "write", "file_id": id, "filename": "notes/a.md", "result": told}));
    assert_eq!(session.told("files_read", &json!({"filename": "notes/a.md"})), "one\ntwo\nthree\n");
    assert_eq!(
        session.told("files_read", &json!({"filename": "notes/a.md", "first_line": 2, "lines": 1})),
        "two\n"
    );
    assert_eq!(session.told("files_read", &json!({"filename": "notes/a.md", "first_line": 9})), "");
    let edit = json!({"filename": "notes/a.md", "old_text": "two", "new_text": "2"});
    assert_eq!(session.told("files_edit", &edit), "Changed 1 place of notes/a.md.");
    let edit = json!({"filename": "notes/a.md", "old_text": "e", "new_text": "E", "everywhere": true});
    assert_eq!(session.told("files_edit", &edit), "Changed 3 places of notes/a.md.");
    let (told, item) = session.call("files_read", &json!({"filename": "notes/a.md"})).unwrap();
    assert_eq!(told, "onE\n2\nthrEE\n");
    assert_eq!((&item["result"], &item["file_id"]), (&json!("onE\n2\nthrEE\n"), &id));
    session.told("files_write", &write("b", ""));
    session.told("files_write", &write("b", "new"));
    assert_eq!(session.told("files_list", &json!({})), "notes/a.md (12 bytes)\nb (3 bytes)");
}

#[test]
fn wrong_arguments_are_named() {
    let mut session = Session::new();
    session.told("files_write", &write("a", "xx"));
    let edit = |old: Value, new: Value| json!({"filename": "a", "old_text": old, "new_text": new});
    let table = [
        ("files_read", json!({}), "filename must be a path of 1 to 120 bytes"),
        ("files_read", json!({"filename": "../a"}), "filename must not have empty names, . or .."),
        (
            "files_read",
            json!({"filename": "/a"}),
            "filename must be relative and have / between names, such as src/main.js",
        ),
        ("files_read", json!({"filename": "a\nb"}), "filename must not hold characters that cannot be seen"),
        (
            "files_read",
            json!({"filename": "list"}),
            "filename names no file of this request: call files_list to see them",
        ),
        (
            "files_read",
            json!({"filename": "a", "first_line": 0}),
            "first_line must be a whole number from 1 to 4294967295",
        ),
        ("files_write", json!({"filename": "a"}), "content is required"),
        ("files_write", json!({"filename": "a", "content": 7}), "content must be a string"),
        ("files_edit", edit(json!(""), json!("y")), "old_text must be a string that is not empty"),
        ("files_edit", edit(json!("x"), Value::Null), "new_text is required"),
        ("files_edit", edit(json!("y"), json!("z")), "old_text does not occur in the file, to the letter"),
        (
            "files_edit",
            edit(json!("x"), json!("z")),
            "old_text occurs 2 times: give more of the text around it, or everywhere = true",
        ),
        ("files_forget", json!({}), "there is no function files_forget"),
    ];
    for (function, arguments, message) in table {
        assert_eq!(session.call(function, &arguments), Err(message.to_owned()), "{arguments}");
    }
    assert_eq!(session.told("files_read", &json!({"filename": "a"})), "xx");
}

#[test]
fn files_are_bounded_in_number_and_size() {
    let mut session = Session::new();
    let most = "x".repeat(FILE_BYTES_MAX);
    let message = format!("A file has at most {FILE_BYTES_MAX} bytes.");
    assert_eq!(session.call("files_write", &write("a", &format!("{most}x"))), Err(message.clone()));
    session.told("files_write", &write("a", &most));
    let grow = json!({"filename": "a", "old_text": "x", "new_text": "y".repeat(1000), "everywhere": true});
    assert_eq!(session.call("files_edit", &grow), Err(message));
    let full = "The files of a request have at most 1 MiB together.".to_owned();
    assert_eq!(session.call("files_write", &write("b", &most)), Err(full));
    assert_eq!(session.told("files_list", &json!({})), format!("a ({FILE_BYTES_MAX} bytes)"));
    let read = session.told("files_read", &json!({"filename": "a"}));
    assert!(read.len() < 100_100 && read.ends_with("read it with first_line.]"));
    for number in 1..FILES_MAX {
        session.told("files_write", &write(&format!("f{number}"), ""));
    }
    let message = format!("A request has at most {FILES_MAX} files.");
    assert_eq!(session.call("files_write", &write("one more", "")), Err(message));
    session.told("files_write", &write("f1", "still there"));
}

#[test]
fn the_offer_is_always_the_same_and_says_which_operation_a_call_is() {
    let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 0 };
    let functions = Files::functions(b"{}".to_vec(), context).unwrap();
    let operations: Vec<Value> = functions
        .iter()
        .map(|function| {
            serde_json::from_slice::<Value>(&function.parameters).unwrap()["x-item"]["operation"].clone()
        })
        .collect();
    assert_eq!(operations, ["list", "read", "write", "edit"]);
}

proptest! {
    /// A file holds what was written last, for any sequence of calls.
    #[test]
    fn reading_returns_the_last_written_content(calls in proptest::collection::vec(("[a-c]", "[xyz\\n]{0,8}", any::<bool>()), 1..30)) {
        let mut session = Session::new();
        let mut expected: BTreeMap<String, String> = BTreeMap::new();
        for (name, text, edits) in calls {
            if edits {
                let edit = json!({"filename": name, "old_text": "x", "new_text": text, "everywhere": true});
                let changed = session.call("files_edit", &edit).is_ok();
                if let Some(known) = expected.get_mut(&name).filter(|known| known.contains('x')) {
                    prop_assert!(changed);
                    *known = known.replace('x', &text);
                }
            } else {
                session.told("files_write", &write(&name, &text));
                expected.insert(name, text);
            }
        }
        for (name, text) in expected {
            prop_assert_eq!(session.told("files_read", &json!({"filename": name})), text);
        }
    }
}
