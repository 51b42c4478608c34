//! A recorded attempt of a provider: the request, and what the provider's server answered.

use std::collections::BTreeMap;

use cofferdam_runtime::wire::{Frame, ResponseHead, Target};
use cofferdam_runtime::{RecordedCall, Recording};
use serde::Serialize;
use serde_json::Value;

use super::answers::{HttpAnswer, headers, text_or_base64};
use super::plain::{PlainValues, brief};

/// The keys of a case that an attempt gives.
#[derive(Default, Serialize)]
pub(super) struct RecordedAttempt {
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    embeddings: Option<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<toml::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<HttpAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<RecordedStream>,
}

/// A stream, by the calls that handed its frames over.
#[derive(Serialize)]
struct RecordedStream {
    status: u16,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    feeds: Vec<Vec<RecordedFrame>>,
}

#[derive(Serialize)]
struct RecordedFrame {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl RecordedAttempt {
    /// The attempt of a recording.
    ///
    /// # Errors
    ///
    /// A case cannot say it.
    pub(super) fn of(recording: &Recording, values: &mut PlainValues) -> Result<Self, String> {
        let mut attempt = Self::default();
        for call in recording.calls() {
            attempt.add(&call, values)?;
        }
        Ok(attempt)
    }

    fn add(&mut self, call: &RecordedCall<'_>, values: &mut PlainValues) -> Result<(), String> {
        let unread = || format!("the input of {} cannot be read", call.function);
        match call.function {
            "generation.prepare" => {
                let (request, target): (Vec<u8>, Target) = call.input().ok_or_else(unread)?;
                self.request = Some(json(&request, values, "the request")?);
                self.target = Some(target_of(&target, values)?);
            }
            "embedding.prepare" => {
                let (request, target): (Vec<u8>, Target) = call.input().ok_or_else(unread)?;
                self.embeddings = Some(json(&request, values, "the request")?);
                self.target = Some(target_of(&target, values)?);
            }
            "decoder.new" => {
                let (ResponseHead { status, headers: all, .. },) = call.input().ok_or_else(unread)?;
                let headers = headers(all, values);
                self.stream = Some(RecordedStream { status, headers, feeds: Vec::new() });
            }
            "decoder.feed" => {
                let (frames,): (Vec<Frame>,) = call.input().ok_or_else(unread)?;
                let frames = frames.into_iter().map(RecordedFrame::from).collect();
                self.stream.as_mut().ok_or_else(unread)?.feeds.push(frames);
            }
            // A case ends each stream by itself.
            "decoder.finish" => {}
            "decode" => {
                let (head, frames): (ResponseHead, Vec<Frame>) = call.input().ok_or_else(unread)?;
                let body = frames.into_iter().next().ok_or_else(unread)?.data;
                self.answer_with(head, body, values)?;
            }
            "dialect.map-error" | "embedding.decode" => {
                let (head, body): (ResponseHead, Vec<u8>) = call.input().ok_or_else(unread)?;
                if head.streamed {
                    values.note("The error came as a stream; in the case it is one body.");
                }
                self.answer_with(head, body, values)?;
            }
            other => return Err(format!("it has a call of {other}, which a case cannot make")),
        }
        Ok(())
    }

    fn answer_with(
        &mut self,
        head: ResponseHead,
        body: Vec<u8>,
        values: &mut PlainValues,
    ) -> Result<(), String> {
        if !(200..600).contains(&head.status) {
            return Err(format!(
                "the provider answered with status {}, and a case takes 200 to 599",
                head.status
            ));
        }
        self.answer = Some(HttpAnswer::whole(head, body, values));
        Ok(())
    }
}

impl From<Frame> for RecordedFrame {
    fn from(Frame { name, data }: Frame) -> Self {
        let (text, base64) = text_or_base64(data);
        Self { name, text, base64 }
    }
}

fn target_of(target: &Target, values: &mut PlainValues) -> Result<toml::Value, String> {
    let options: Value = serde_json::from_slice(&target.options).unwrap_or_default();
    values.plain(&brief(target, [("options", options)]), "the target")
}

/// JSON of a client, as TOML.
pub(super) fn json(bytes: &[u8], values: &mut PlainValues, what: &str) -> Result<toml::Value, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| format!("{what} is not JSON"))?;
    values.plain(&value, what)
}
