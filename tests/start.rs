//! The first start in an empty directory prints a key and a working curl command.

use crate::kit::client::{Client, text_of};
use crate::kit::host::Setup;
use serde_json::json;

#[tokio::test]
async fn an_empty_directory_gives_a_key_and_a_line_that_streams_an_answer() {
    let host = Setup::new().start();
    assert!(host.key.starts_with("cfd_"), "{}", host.banner);
    let curl = host.banner["curl"].as_str().unwrap();
    assert!(curl.contains(&host.key) && curl.contains(&host.base), "{curl}");
    let output = std::process::Command::new("sh").arg("-c").arg(curl).output().unwrap();
    let stream = String::from_utf8(output.stdout).unwrap();
    assert!(stream.contains("event: response.output_text.delta"), "{stream}");
    assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    assert!(!host.log().contains(&host.key), "the key is in the log");
}

#[tokio::test]
async fn a_later_start_prints_no_key_and_the_first_key_still_works() {
    let host = Setup::new().start().restart();
    assert!(host.banner.get("key").is_none());
    let request = json!({"model": "local/demo", "input": "good morning"});
    let events = Client::new(&host).stream(&request).await;
    assert!(text_of(&events).contains("good morning"));
}
