//! The server tool `files`: text files that exist until the request ends. The model stores plans and
//! long texts there, reads them again and changes them piece by piece.

mod edit;
mod offer;
mod shelf;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::scratch::{self, ScratchError};
use cofferdam_guest_kit::bindings::tools::{Function, Guest, Output, ToolError};
use cofferdam_guest_kit::bindings::types::{CallContext, Json};
use cofferdam_guest_kit::server_tool::{Fields, clip, unknown_function};
use serde_json::{Value, json};

use shelf::{Full, Keep, Shelf};

/// The longest content that one call returns, in characters.
const RENDERED_CHARS_MAX: usize = 100_000;

struct Files;

cofferdam_guest_kit::export!(tool: Files);

impl Guest for Files {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        Fields::settings(&settings)?;
        Ok(offer::functions())
    }

    fn invoke(function: String, arguments: Json, _: Json, _: CallContext) -> Result<Output, ToolError> {
        act(&mut Shelf::new(Host), &function, &Fields::arguments(&arguments)?)
    }
}

/// The host's storage for this request.
struct Host;

impl Keep for Host {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        scratch::get(key)
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Full> {
        scratch::set(key, value).map_err(|error| match error {
            ScratchError::Full => Full::Bytes,
            ScratchError::InvalidKey => Full::Key,
        })
    }
}

/// Executes one function.
fn act<K: Keep>(shelf: &mut Shelf<K>, function: &str, arguments: &Fields) -> Result<Output, ToolError> {
    match function {
        offer::LIST => Ok(list(shelf)),
        offer::READ => read(shelf, arguments),
        offer::WRITE => write(shelf, arguments),
        offer::EDIT => change(shelf, arguments),
        _ => Err(unknown_function(function)),
    }
}

fn list<K: Keep>(shelf: &Shelf<K>) -> Output {
    let names = shelf.names();
    let line = |name: &String| {
        let bytes = shelf.read(name).map_or(0, |content| content.len());
        format!("{name} ({bytes} bytes)")
    };
    let lines: Vec<String> = names.iter().map(line).collect();
    let result = if lines.is_empty() { "There are no files yet.".to_owned() } else { lines.join("\n") };
    output(json!({ "operation": "list", "result": result }), result)
}

fn read<K: Keep>(shelf: &mut Shelf<K>, arguments: &Fields) -> Result<Output, ToolError> {
    let name = shelf::name_of(arguments)?;
    let first = arguments.integer("first_line", 1..=u32::MAX)?.unwrap_or(1);
    let count = arguments.integer("lines", 1..=u32::MAX)?.unwrap_or(u32::MAX);
    let content = existing(shelf, arguments, name)?;
    let from = usize::try_from(first - 1).unwrap_or(usize::MAX);
    let lines: Vec<&str> = content.split_inclusive('\n').skip(from).take(count as usize).collect();
    let text = lines.concat();
    let clipped = clip(&text, RENDERED_CHARS_MAX);
    let mut result = clipped.text.to_owned();
    if clipped.cut {
        result.push_str("\n[The rest was left out: read it with first_line.]");
    }
    Ok(output(about("read", name, &result), result))
}

fn write<K: Keep>(shelf: &mut Shelf<K>, arguments: &Fields) -> Result<Output, ToolError> {
    let name = shelf::name_of(arguments)?;
    let content = arguments.text("content")?.ok_or_else(|| arguments.wrong("content", "is required"))?;
    shelf.write(name, content)?;
    let result = format!("Wrote {} bytes to {name}.", content.len());
    Ok(output(about("write", name, &result), result))
}

fn change<K: Keep>(shelf: &mut Shelf<K>, arguments: &Fields) -> Result<Output, ToolError> {
    let name = shelf::name_of(arguments)?;
    let edit = edit::Edit::read(arguments)?;
    let content = existing(shelf, arguments, name)?;
    let (changed, count) = edit.apply(&content, arguments)?;
    shelf.write(name, &changed)?;
    let result = format!("Changed {count} {} of {name}.", if count == 1 { "place" } else { "places" });
    Ok(output(about("edit", name, &result), result))
}

fn existing<K: Keep>(shelf: &Shelf<K>, arguments: &Fields, name: &str) -> Result<String, ToolError> {
    let takes = "names no file of this request: call files_list to see them";
    shelf.read(name).ok_or_else(|| arguments.wrong("filename", takes))
}

fn about(operation: &str, name: &str, result: &str) -> Value {
    json!({ "operation": operation, "file_id": shelf::id_of(name), "filename": name, "result": result })
}

fn output(item: Value, for_model: String) -> Output {
    Output::new(for_model, item)
}
