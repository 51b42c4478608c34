//! Replaces parts of a request. Everything between the replaced parts is copied unchanged.

use std::ops::Range;

use cofferdam_guest_kit::Part;
use cofferdam_pdf::Document;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::settings::Operator;
use crate::{file, frame};

/// The largest number of PDF files in one request.
const FILES_MAX: usize = 32;
/// How many bytes a request may grow beyond its own length. The host accepts twice the original
/// length plus one MiB; a part of that MiB is left for the tags around the texts.
const GROWTH_BYTES: usize = 1024 * 1024 - 192 * 1024;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default, borrow)]
    input: Vec<&'a RawValue>,
}

/// The members that may hold parts: the content of a message, the output of a call.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
}

/// The cache hints of a part, which its text keeps.
#[derive(Deserialize)]
struct Marks<'a> {
    #[serde(default, borrow)]
    prompt_cache_breakpoint: Option<&'a RawValue>,
    #[serde(default, borrow)]
    cache_control: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct TextPart<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_breakpoint: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a RawValue>,
}

/// What may still be written.
struct Room {
    files: usize,
    chars: usize,
    bytes: usize,
}

/// The request with the text of its PDF files; `None` when it has no PDF files.
///
/// # Errors
///
/// When a file cannot be read; the message begins with its path.
pub(crate) fn with_text(request: &str, operator: &Operator) -> Result<Option<String>, String> {
    let Ok(Request { input }) = serde_json::from_str(request) else { return Ok(None) };
    let mut room = Room { files: FILES_MAX, chars: operator.chars_max, bytes: request.len() + GROWTH_BYTES };
    let mut replaced: Vec<(Range<usize>, String)> = Vec::new();
    for (item_index, item) in input.into_iter().enumerate() {
        let Ok(Item { content, output }) = serde_json::from_str(item.get()) else { continue };
        for (member, parts) in [("content", content), ("output", output)] {
            // A plain text in place of parts holds no file.
            let parts = parts.and_then(|parts| serde_json::from_str::<Vec<&RawValue>>(parts.get()).ok());
            for (index, part) in parts.into_iter().flatten().enumerate() {
                let text = part_text(part, &mut room)
                    .map_err(|message| format!("input[{item_index}].{member}[{index}]{message}"))?;
                replaced.extend(text.map(|text| (range(request, part), text)));
            }
        }
    }
    if replaced.is_empty() {
        return Ok(None);
    }
    let mut out = String::with_capacity(request.len());
    let mut at = 0;
    for (range, text) in replaced {
        out.push_str(request.get(at..range.start).unwrap_or_default());
        out.push_str(&text);
        at = range.end;
    }
    out.push_str(request.get(at..).unwrap_or_default());
    Ok(Some(out))
}

/// The byte range in the request of a value that was borrowed from it.
fn range(request: &str, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr().saturating_sub(request.as_ptr().addr());
    start..start + value.get().len()
}

/// The text part that replaces this part, if it is a PDF file.
fn part_text(part: &RawValue, room: &mut Room) -> Result<Option<String>, String> {
    let Ok(Part::File { filename, data, url, .. }) = serde_json::from_str(part.get()) else {
        return Ok(None);
    };
    let Some(data) = data else {
        // A file id refers to the endpoint's own storage, so the endpoint reads it.
        return url.map_or(Ok(None), |_| {
            Err(".file_url is not fetched by file-parser: send the file as file_data, or set pdf.engine to native"
                .to_owned())
        });
    };
    let filename = filename.as_deref();
    let Some(bytes) = file::pdf(&data, filename).map_err(|message| format!(".file_data {message}"))? else {
        return Ok(None);
    };
    room.files =
        room.files.checked_sub(1).ok_or_else(|| format!(" is one PDF file more than {FILES_MAX}"))?;
    let document = read(&bytes, room).map_err(|message| format!(".file_data: {message}"))?;
    let marks: Marks<'_> = serde_json::from_str(part.get())
        .unwrap_or(Marks { prompt_cache_breakpoint: None, cache_control: None });
    let text = TextPart {
        kind: "input_text",
        text: &frame::framed(filename, &document),
        prompt_cache_breakpoint: marks.prompt_cache_breakpoint,
        cache_control: marks.cache_control,
    };
    serde_json::to_string(&text).map(Some).map_err(|_| " cannot be written as text".to_owned())
}

/// Reads as much text as fits into `room`, and reduces `room` by it.
fn read(bytes: &[u8], room: &mut Room) -> Result<Document, String> {
    if room.chars == 0 || room.bytes == 0 {
        return Ok(Document { title: None, text: String::new(), cut: true });
    }
    let mut document = cofferdam_pdf::read(bytes, room.chars)?;
    let fitting = frame::fitting(&document.text, room.bytes).len();
    if fitting < document.text.len() {
        document.text.truncate(fitting);
        document.cut = true;
        room.bytes = 0;
    } else {
        // An upper bound: a character takes at most six bytes in JSON, and few take more than two.
        let escaped = document.text.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).count();
        room.bytes = room.bytes.saturating_sub(document.text.len() + escaped * 5);
    }
    room.chars = room.chars.saturating_sub(document.text.chars().count());
    Ok(document)
}
