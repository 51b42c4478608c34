//! Reduces the items of `input` to what the upstream server accepts. Most ids are dropped: this
//! service gave them out, so they are unknown upstream. Some types of items keep theirs or need one.
//! Reasoning is sent only if the upstream server sealed it. An item of an unknown type is left out,
//! because it may come from another provider's answer. A content part of an unknown type is refused.

use cofferdam_dialect_openai::{Fields, failure};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::json;
use cofferdam_protocol::{ObjectWriter, separate};
use serde_json::value::RawValue;

use crate::members::{ITEMS, Id, PARTS};
use crate::seal::{Sealed, is_id, unseal};

/// Members that hold the result of a tool.
const RESULTS: [&str; 4] = ["output", "outputs", "results", "error"];

/// Writes the JSON array that is sent.
pub(crate) fn write_input(items: &[Fields<'_>], out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut writer = ItemWriter { out, reasoning: Vec::new() };
    writer.out.push(b'[');
    for (index, fields) in items.iter().enumerate() {
        writer.write(fields, index)?;
    }
    writer.out.push(b']');
    Ok(())
}

struct ItemWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Reasoning whose following item is not known yet. The server refuses reasoning without the
    /// output it led to, which happens when an answer was cut off or an item was left out.
    reasoning: Vec<Vec<u8>>,
}

impl ItemWriter<'_> {
    fn write(&mut self, fields: &Fields<'_>, index: usize) -> Result<(), Failure> {
        let kind = fields.text("type").unwrap_or_default();
        match &*kind {
            "reasoning" => self.reasoning.extend(reasoning(fields)),
            "message" => {
                let by_model = fields.text("role").as_deref() == Some("assistant");
                self.start(by_model);
                write_message(fields, index, self.out)?;
            }
            "function_call_output" | "custom_tool_call_output" => {
                self.start(false);
                write_result(&kind, fields, index, self.out)?;
            }
            // Newer items of coding agents, whose fields are not documented.
            "agent_message" | "configuration_update" => {
                self.start(false);
                let mut object = ObjectWriter::new(self.out);
                for (name, value) in fields.iter().filter(|(name, _)| *name != "id") {
                    object.foreign_name(name).extend_from_slice(value.get().as_bytes());
                }
                object.end();
            }
            _ => self.write_by_table(&kind, fields, index),
        }
        Ok(())
    }

    fn write_by_table(&mut self, kind: &str, fields: &Fields<'_>, index: usize) {
        let Some((_, id_rule, names)) = ITEMS.iter().find(|(known, ..)| *known == kind) else { return };
        let id = fields.text("id").filter(|id| is_id(id));
        let id = match id_rule {
            Id::Dropped => None,
            Id::Kept => id,
            Id::Required(prefix) => match id.filter(|id| id.starts_with(prefix)) {
                Some(id) => Some(id),
                // A tool result is useful to the model whichever provider made the item, so it gets an id.
                None if RESULTS.iter().any(|name| fields.get(name).is_some()) => {
                    Some(format!("{prefix}{index:032x}").into())
                }
                None => return,
            },
        };
        self.start(kind.ends_with("_call"));
        let mut object = ObjectWriter::new(self.out);
        object.value("type", kind);
        if let Some(id) = id {
            object.value("id", id);
        }
        fields.pick(names, &mut object);
        // The field is required but may be null; the host leaves null fields out.
        if kind == "code_interpreter_call" && fields.get("outputs").is_none() {
            object.raw("outputs", "null");
        }
        fields.pick(&["status"], &mut object);
        object.end();
    }

    /// Starts an item. If the model made it, the reasoning that led to it is written first.
    fn start(&mut self, by_model: bool) {
        let reasoning = std::mem::take(&mut self.reasoning);
        for item in reasoning.into_iter().filter(|_| by_model) {
            separate(self.out);
            self.out.extend(item);
        }
        separate(self.out);
    }
}

fn reasoning(fields: &Fields<'_>) -> Option<Vec<u8>> {
    let encrypted = fields.text("encrypted_content")?;
    let Sealed { id, payload } = unseal(&encrypted)?;
    let mut out = Vec::with_capacity(payload.len() + 128);
    let mut object = ObjectWriter::new(&mut out);
    object.value("type", "reasoning");
    object.value("id", id);
    match fields.get("summary").filter(|summary| summary.get().starts_with('[')) {
        Some(summary) => object.raw("summary", summary.get()),
        None => object.raw("summary", "[]"),
    }
    object.value("encrypted_content", payload);
    object.end();
    Some(out)
}

fn write_message(fields: &Fields<'_>, index: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut object = ObjectWriter::new(out);
    object.value("type", "message");
    fields.pick(&["role"], &mut object);
    let is_assistants = fields.text("role").is_some_and(|role| role == "assistant");
    write_parts(fields.get("content"), (index, "content"), is_assistants, object.name("content"))?;
    fields.pick(&["phase", "status"], &mut object);
    object.end();
    Ok(())
}

fn write_result(kind: &str, fields: &Fields<'_>, index: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut object = ObjectWriter::new(out);
    object.value("type", kind);
    // `name` and `namespace` describe an output that answers no call.
    fields.pick(&["call_id", "name", "namespace", "caller"], &mut object);
    write_parts(fields.get("output"), (index, "output"), false, object.name("output"))?;
    fields.pick(&["status"], &mut object);
    object.end();
    Ok(())
}

/// Writes text unchanged, and parts with only the known fields. `item` and `member` are the position
/// for error messages. Some clients replay what the assistant said as `input_text`, which the server
/// takes from other roles only.
fn write_parts(
    content: Option<&RawValue>,
    (item, member): (usize, &str),
    is_assistants: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let Some(content) = content else {
        out.extend_from_slice(b"\"\"");
        return Ok(());
    };
    let parts = content.get().starts_with('[').then(|| json::from_str::<Vec<Fields<'_>>>(content.get()));
    let Some(Ok(parts)) = parts else {
        out.extend_from_slice(content.get().as_bytes());
        return Ok(());
    };
    out.push(b'[');
    for (index, part) in parts.iter().enumerate() {
        let kind = part.text("type").unwrap_or_default();
        let kind = if is_assistants && kind == "input_text" { "output_text".into() } else { kind };
        let Some((kind, names)) = PARTS.iter().find(|(known, _)| *known == kind) else {
            let path = format!("input[{item}].{member}[{index}].type");
            return Err(failure::unsupported(&path, "a part of this type"));
        };
        separate(out);
        write_part(kind, part, names, out);
    }
    out.push(b']');
    Ok(())
}

fn write_part(kind: &str, part: &Fields<'_>, names: &[&str], out: &mut Vec<u8>) {
    if kind != "output_text" {
        let mut object = ObjectWriter::new(out);
        part.pick(&["type"], &mut object);
        part.pick(names, &mut object);
        return object.end();
    }
    let mut object = ObjectWriter::new(out);
    object.value("type", kind);
    part.pick(names, &mut object);
    // The field is required. Its content is dropped, because it may contain annotations that the
    // server does not support.
    object.raw("annotations", "[]");
    object.end();
}
