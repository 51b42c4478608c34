//! A rough count of tokens. Names and media are not counted, because their number of tokens does not
//! depend on their length.

use cofferdam_guest_kit::is_text_member;
use serde_json::Value;

/// The tokens that the structure around an item costs.
const FRAME_TOKENS: u64 = 4;

/// The tokens of one input item.
pub(crate) fn item(item: &Value) -> u64 {
    chars(item).div_ceil(4) + FRAME_TOKENS
}

/// The tokens of a request without its input items.
pub(crate) fn frame(request: &Value) -> u64 {
    let instructions = request.get("instructions").map_or(0, chars);
    // The model gets the schemas nearly as they are written.
    let tools = request.get("tools").map_or(0, |tools| tools.to_string().len() as u64);
    (instructions + tools).div_ceil(4)
}

/// The characters of text in a value. The JSON parser limits the depth of the recursion.
fn chars(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Array(values) => values.iter().map(chars).sum(),
        Value::Object(members) => {
            let text = members.iter().filter(|(name, _)| is_text_member(name));
            text.map(|(_, value)| chars(value)).sum()
        }
        _ => 0,
    }
}
