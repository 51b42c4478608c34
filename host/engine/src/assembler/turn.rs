//! Renders the output of one turn as input for the next: items in the normal form of requests, with
//! calls of server tools as the function calls that the model made. Ids are omitted, because they
//! differ in each response, while equal conversations must give equal requests.

use super::Assembler;
use super::items::{
    ContentPart, ItemBody, OutputItem, list, write_reasoning_text, write_seal, write_summary_text,
};
use super::json::{optional_string, raw, string};
use bytes::Bytes;

impl Assembler {
    /// The items of this turn in their order, each as a JSON object.
    pub fn turn_items(&self) -> Vec<Bytes> {
        let items = self.items.iter().skip(self.turn_start);
        items.filter_map(OutputItem::as_input).map(Bytes::from).collect()
    }
}

impl OutputItem {
    /// None for an item without content.
    fn as_input(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        match &self.body {
            ItemBody::Opaque { json, .. } => out.extend_from_slice(json),
            ItemBody::Message { parts, .. } if parts.is_empty() => return None,
            ItemBody::Message { phase, parts } => {
                raw(&mut out, "{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\"");
                if let Some(phase) = phase {
                    raw(&mut out, ",\"phase\":");
                    string(&mut out, phase);
                }
                raw(&mut out, ",\"content\":");
                list(&mut out, parts, write_part);
                raw(&mut out, "}");
            }
            ItemBody::Reasoning { summary, text, seal } => {
                raw(&mut out, "{\"type\":\"reasoning\",\"summary\":");
                list(&mut out, summary, |out, text| write_summary_text(out, text));
                if let Some(text) = text {
                    raw(&mut out, ",\"content\":[");
                    write_reasoning_text(&mut out, text);
                    raw(&mut out, "]");
                }
                if let Some(seal) = seal {
                    write_seal(&mut out, seal);
                }
                raw(&mut out, "}");
            }
            ItemBody::Tool { call_id, function, arguments, .. } => {
                write_call(&mut out, "function_call", call_id, function);
                raw(&mut out, ",\"arguments\":");
                string(&mut out, arguments);
                raw(&mut out, "}");
            }
            ItemBody::Call { custom, call_id, name, namespace, text } => {
                write_call(
                    &mut out,
                    if *custom { "custom_tool_call" } else { "function_call" },
                    call_id,
                    name,
                );
                if let Some(namespace) = namespace {
                    raw(&mut out, ",\"namespace\":");
                    string(&mut out, namespace);
                }
                raw(&mut out, if *custom { ",\"input\":" } else { ",\"arguments\":" });
                string(&mut out, text);
                raw(&mut out, "}");
            }
            ItemBody::Client(call) => call.write(None, &mut out),
            ItemBody::Image { result } => {
                raw(&mut out, "{\"type\":\"image_generation_call\",\"status\":\"completed\",\"result\":");
                optional_string(&mut out, result.as_deref());
                raw(&mut out, "}");
            }
        }
        Some(out)
    }
}

fn write_call(out: &mut Vec<u8>, kind: &str, call_id: &str, name: &str) {
    raw(out, "{\"type\":\"");
    raw(out, kind);
    raw(out, "\",\"call_id\":");
    string(out, call_id);
    raw(out, ",\"name\":");
    string(out, name);
}

fn write_part(out: &mut Vec<u8>, part: &ContentPart) {
    match part {
        ContentPart::Text { text, .. } => {
            raw(out, "{\"type\":\"output_text\",\"text\":");
            string(out, text);
            raw(out, ",\"annotations\":[]}");
        }
        ContentPart::Refusal(_) => part.write(out),
    }
}
