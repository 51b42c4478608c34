//! The client of the tour: one request to the host, whose answer is read as a stream of events.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// An answer that was read to its end.
pub(super) struct StreamedAnswer {
    /// All bytes of the stream, for the search.
    pub(super) bytes: Bytes,
    /// The number of events.
    pub(super) events: usize,
    /// The `output` of the finished response.
    output: Vec<Value>,
}

impl StreamedAnswer {
    /// The item of a server tool.
    pub(super) fn tool_item(&self, kind: &str) -> Option<&Value> {
        self.output.iter().find(|item| item["type"] == kind)
    }

    /// The text that the model wrote.
    pub(super) fn text(&self) -> String {
        let messages = self.output.iter().filter(|item| item["type"] == "message");
        let parts = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        parts.filter_map(|part| part["text"].as_str()).collect()
    }
}

/// Sends one request and reads the stream of its answer.
///
/// # Errors
///
/// The host cannot be reached, or its answer is not a finished response.
pub(super) async fn ask(
    listen: &str,
    key: &str,
    model: &str,
    input: &str,
    tool: &str,
) -> Result<StreamedAnswer, String> {
    let fault = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect(listen).await.map_err(|error| fault(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| fault(&error))?;
    let body = json!({"model": model, "input": input, "tools": [{"type": tool}], "stream": true}).to_string();
    let request = Request::post("/v1/responses")
        .header(header::HOST, listen)
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| fault(&error))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| fault(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| fault(&error))?.to_bytes();
        if !status.is_success() {
            return Err(format!("the host answered {status}: {}", String::from_utf8_lossy(&bytes)));
        }
        read(bytes)
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection ends when it was closed or has failed: the exchange knows why.
        _ = connection => exchange.await,
    }
}

fn read(bytes: Bytes) -> Result<StreamedAnswer, String> {
    let text = String::from_utf8_lossy(&bytes);
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let finished = events.iter().find(|event| event["type"] == "response.completed");
    let output = finished.and_then(|event| event.pointer("/response/output")?.as_array());
    let Some(output) = output.cloned() else {
        let last = events.last().map(Value::to_string).unwrap_or_default();
        return Err(format!("the response did not complete; its last event: {last}"));
    };
    Ok(StreamedAnswer { events: events.len(), output, bytes: bytes.clone() })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_stream_without_an_end_is_an_error_with_its_last_event() {
        let stream = "event: x\ndata: {\"type\":\"response.failed\",\"why\":\"no model\"}\n\n";
        let error = read(stream.into()).err().unwrap();
        assert!(error.contains("did not complete") && error.contains("no model"), "{error}");
    }
}
