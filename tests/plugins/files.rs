//! The plugin `file-parser`: PDF files become text on their way to the model.

use super::asked;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat;
use crate::kit::upstream::Upstream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const PAPER: &[u8] = include_bytes!("../../guests/pdf/fixtures/paper.pdf");

async fn bench() -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    (Setup::new().config(&single("openai-chat", &upstream.base)).start(), upstream)
}

fn request(file: Value, entry: Value) -> Value {
    let mut part = json!({"type": "input_file", "filename": "paper.pdf"});
    part.as_object_mut().unwrap().extend(file.as_object().unwrap().clone());
    let content = json!([{"type": "input_text", "text": "Sum this up."}, part]);
    json!({"model": MODEL, "input": [{"role": "user", "content": content}],
        "plugins": [{"id": "response-healing"}, entry]})
}

fn paper() -> Value {
    json!({"file_data": format!("data:application/pdf;base64,{}", STANDARD.encode(PAPER))})
}

#[tokio::test]
async fn a_model_gets_the_text_of_a_pdf_under_its_name() {
    let (host, upstream) = bench().await;
    for entry in [
        json!({"id": "file-parser"}),
        json!({"id": "file-parser", "pdf": {"engine": "cloudflare-ai"}}),
        json!({"id": "file-parser", "pdf": {"engine": "pdf-text"}, "enabled": true}),
    ] {
        upstream.reply(chat("a paper"));
        let answer = Client::new(&host).post("/responses", &request(paper(), entry.clone())).await;
        assert_eq!(answer.output_text(), "a paper", "{entry}");
        let told = asked(&upstream);
        assert!(told.contains(r#"<file name=\"paper.pdf\" title=\"A paper\">\nHello from a page"#), "{told}");
        assert!(!told.contains("base64"), "{told}");
    }
}

#[tokio::test]
async fn a_file_stays_one_for_the_endpoint_when_that_is_asked_for() {
    let (host, upstream) = bench().await;
    for entry in [
        json!({"id": "file-parser", "pdf": {"engine": "native"}}),
        json!({"id": "file-parser", "enabled": false}),
    ] {
        upstream.reply(chat("a file"));
        let answer = Client::new(&host).post("/responses", &request(paper(), entry.clone())).await;
        assert_eq!(answer.output_text(), "a file", "{entry}");
        assert!(asked(&upstream).contains("data:application/pdf;base64,"), "{entry}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_a_400_that_names_it() {
    let (host, upstream) = bench().await;
    let parser = json!({"id": "file-parser"});
    let broken = STANDARD.encode(b"%PDF-1.7\nnothing");
    let table = [
        (
            request(json!({"file_data": broken}), parser.clone()),
            "input[0].content[1].file_data: The PDF is damaged and cannot be read.",
        ),
        (
            request(json!({"file_data": "data:application/pdf;base64,!"}), parser.clone()),
            "input[0].content[1].file_data is said to be a PDF and is not valid base64",
        ),
        (
            request(json!({"file_url": "https://example.com/a.pdf"}), parser),
            "input[0].content[1].file_url is not fetched by file-parser",
        ),
        (
            request(paper(), json!({"id": "file-parser", "pdf": {"engine": "mistral-ocr"}})),
            "plugins[1].pdf.engine \"mistral-ocr\" is not available on this host",
        ),
        (
            request(paper(), json!({"id": "file-parser", "pdf": {"engine": "guess"}})),
            "plugins[1].pdf.engine must be one of",
        ),
    ];
    for (request, message) in table {
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.message().starts_with(message), "{}", answer.text);
        assert_eq!(answer.body["error"]["metadata"]["error_type"], "invalid_request");
    }
    assert!(upstream.asked().is_empty());
}
