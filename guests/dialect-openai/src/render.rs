//! Renders events as lines of text, so that expected events are easy to read.

use cofferdam_guest_kit::bindings::generation::{CallStart, Event};

/// One line for each event.
#[must_use]
pub fn render(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut lines, event| {
        let line = line(event).replace("ErrorKind::", "").replace("FinishReason::", "");
        lines.push_str(&line);
        lines.push('\n');
        lines
    })
}

fn line(event: &Event) -> String {
    let json = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event {
        Event::MessageStart(phase) => format!("message {}", phase.as_deref().unwrap_or("-")),
        Event::TextDelta(delta) => {
            format!("text {:?} {}", delta.text, json(&delta.logprobs)).trim_end().into()
        }
        Event::RefusalDelta(text) => format!("refusal {text:?}"),
        Event::Annotation(annotation) => format!("annotation {}", json(annotation)),
        Event::ReasoningTextDelta(text) => format!("reasoning {text:?}"),
        Event::ReasoningSummaryDelta(delta) => format!("summary {} {:?}", delta.part, delta.text),
        Event::ReasoningSeal(seal) => {
            format!("seal {:?} {:?} {:?}", seal.signature, seal.encrypted_content, seal.format)
        }
        Event::FunctionCallStart(start) => format!("function {}", call(start)),
        Event::CustomCallStart(start) => format!("custom {}", call(start)),
        Event::FunctionArgumentsDelta(delta) => format!("arguments {} {:?}", delta.key, delta.text),
        Event::CustomInputDelta(delta) => format!("input {} {:?}", delta.key, delta.text),
        Event::CallEnd(key) => format!("end {key}"),
        Event::ImagePartial(image) => {
            format!("partial {} {} {} {}", image.key, image.partial_index, image.media_type, image.base64)
        }
        Event::ImageDone(image) => format!("image {} {} {}", image.key, image.media_type, image.base64),
        Event::OpaqueItem(item) => format!("opaque {}", json(item)),
        Event::Usage(usage) => format!(
            "usage in={} cached={} written={} out={} reasoning={} images={} requests={} cost={:?}",
            usage.input_tokens,
            usage.cached_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            usage.images,
            usage.provider_tool_requests,
            usage.cost_dollars
        ),
        Event::Finish(finish) => {
            format!("finish {:?} {}", finish.reason, finish.service_tier.as_deref().unwrap_or("-"))
        }
        Event::Error(failure) => {
            format!(
                "error {:?} {} {:?}",
                failure.kind,
                failure.code.as_deref().unwrap_or("-"),
                failure.message
            )
        }
    }
}

fn call(start: &CallStart) -> String {
    let namespace = start.namespace.as_deref().unwrap_or("-");
    format!("{} {} {} {namespace}", start.key, start.call_id, start.name)
}
