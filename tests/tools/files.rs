//! Files that the model keeps while it answers one request.

use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

fn arguments(members: Value) -> String {
    members.to_string()
}

#[tokio::test]
async fn files_last_as_long_as_the_request() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "service:files"}]});
    let write = arguments(json!({"filename": "notes/a.md", "content": "one\ntwo\n"}));
    let edit = arguments(json!({"filename": "notes/a.md", "old_text": "two", "new_text": "2"}));
    let name = arguments(json!({"filename": "notes/a.md"}));
    for streamed in [false, true] {
        upstream.reply(calls(streamed, "", &[call("c1", "files_write", &write)]));
        upstream.reply(calls(streamed, "", &[call("c2", "files_edit", &edit)]));
        upstream.reply(calls(streamed, "", &[call("c3", "files_read", &name), call("c4", "files_list", "")]));
        upstream.reply(answer(streamed, "done"));
        let response = if streamed {
            last_response(&client.stream(&request).await).clone()
        } else {
            client.post("/responses", &request).await.body
        };
        let output = response["output"].as_array().unwrap();
        let operations: Vec<_> = output[..4].iter().map(|item| (&item["type"], &item["operation"])).collect();
        let kind = json!("service:files");
        let expected = [json!("write"), json!("edit"), json!("read"), json!("list")];
        assert_eq!(operations, expected.iter().map(|operation| (&kind, operation)).collect::<Vec<_>>());
        assert_eq!(
            (&output[2]["filename"], &output[2]["result"]),
            (&json!("notes/a.md"), &json!("one\n2\n"))
        );
        assert_eq!(
            (&output[0]["file_id"], &output[0]["status"]),
            (&output[2]["file_id"], &json!("completed"))
        );
        assert_eq!(output[3]["result"], "notes/a.md (6 bytes)");
        let asked = upstream.asked();
        assert_eq!(told(asked.last().unwrap())[2..], ["one\n2\n", "notes/a.md (6 bytes)"]);
    }
    // The next request has files of its own.
    upstream.reply(calls(false, "", &[call("c1", "files_read", &name)]));
    upstream.reply(answer(false, "done"));
    let response = client.post("/responses", &request).await;
    let item = &response.body["output"][0];
    assert_eq!((&item["status"], &item["operation"]), (&json!("failed"), &json!("read")));
    assert_eq!(item["error"], "filename names no file of this request: call files_list to see them");
}

#[tokio::test]
async fn invalid_names_and_large_files_are_errors_for_the_model() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let write = |name: &str, bytes: usize| arguments(json!({"filename": name, "content": "x".repeat(bytes)}));
    let big = write("big", 600_000);
    let (one, two, three) = (write("1", 500_000), write("2", 500_000), write("3", 500_000));
    let names: Vec<String> =
        ["../a", "/etc/passwd", "a\\b", "a\u{202e}b", ""].map(|name| write(name, 1)).to_vec();
    let mut made: Vec<_> = names.iter().map(|name| call("", "files_write", name)).collect();
    made.extend([&big, &one, &two, &three].map(|arguments| call("", "files_write", arguments)));
    upstream.reply(calls(false, "", &made));
    upstream.reply(answer(false, "done"));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "openrouter:files"}]});
    let response = Client::new(&host).post("/responses", &request).await;
    assert_eq!(response.output_text(), "done", "{}", response.text);
    let output = response.body["output"].as_array().unwrap();
    for item in &output[..5] {
        assert!(item["error"].as_str().unwrap().starts_with("filename must "), "{item}");
    }
    assert_eq!(output[5]["error"], "A file has at most 524288 bytes.");
    let last: Vec<_> = output[6..9].iter().filter(|item| item["status"] == "failed").collect();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0]["error"], "The files of a request have at most 1 MiB together.");
}
