//! Renders values as text of bounded length and depth, without running any code of the value: no
//! getter, no proxy, no `toString`.

use std::fmt::{self, Write};

use boa_engine::builtins::proxy::Proxy;
use boa_engine::property::PropertyKey;
use boa_engine::{Context, JsObject, JsValue};

/// How many levels of nested objects are shown.
const DEPTH_MAX: usize = 6;
/// How many entries of one object are shown.
const ENTRIES_MAX: usize = 200;
/// The longest line of entries, in characters.
const LINE_CHARS_MAX: usize = 80;
const LEFT_OUT: &str = "...";

/// `value` as text of at most `bytes_max` bytes, plus a few bytes that mark omissions.
pub(crate) fn inspect(value: &JsValue, context: &mut Context, bytes_max: usize) -> String {
    let mut view = View { context, above: Vec::new(), room: bytes_max };
    view.value(value)
}

struct View<'c> {
    context: &'c mut Context,
    /// The objects that contain the current one, to detect cycles.
    above: Vec<JsObject>,
    /// The number of bytes that may still be written.
    room: usize,
}

impl View<'_> {
    fn value(&mut self, value: &JsValue) -> String {
        if let Some(text) = value.as_string() {
            return if self.above.is_empty() {
                self.spend(text.to_std_string_lossy())
            } else {
                self.spend(quoted(&text.to_std_string_lossy()))
            };
        }
        match value.as_object() {
            Some(object) => self.object(&object, value),
            None => self.displayed(value),
        }
    }

    fn object(&mut self, object: &JsObject, value: &JsValue) -> String {
        if object.is::<Proxy>() {
            return self.spend("[Proxy]".to_owned());
        }
        if object.is_callable() {
            let name =
                own(object, "name").and_then(|name| name.as_string().map(|name| name.to_std_string_lossy()));
            let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "(anonymous)".to_owned());
            return self.spend(format!("[Function: {name}]"));
        }
        let is_array = object.is_array();
        if !is_array && !object.is_ordinary() {
            return self.displayed(value);
        }
        if self.above.iter().any(|above| JsObject::equals(above, object)) {
            return self.spend("[Circular]".to_owned());
        }
        if self.above.len() >= DEPTH_MAX {
            return self.spend(if is_array { "[Array]" } else { "[Object]" }.to_owned());
        }
        // Brackets count too, because nested empty lists give a long text.
        self.room = self.room.saturating_sub(2);
        if self.room == 0 {
            return LEFT_OUT.to_owned();
        }
        self.above.push(object.clone());
        let entries = if is_array { self.elements(object) } else { self.members(object) };
        self.above.pop();
        let (open, close) = if is_array { ('[', ']') } else { ('{', '}') };
        let class = if is_array { None } else { class(object) };
        joined(class.as_deref(), open, &entries, close, self.above.len())
    }

    fn elements(&mut self, object: &JsObject) -> Vec<String> {
        let length = own(object, "length").and_then(|length| length.as_number()).unwrap_or_default() as usize;
        let mut entries = Vec::new();
        for index in 0..length.min(ENTRIES_MAX) {
            if self.room == 0 {
                break;
            }
            let key = PropertyKey::from(u32::try_from(index).unwrap_or(u32::MAX));
            entries.push(self.property(object, &key));
        }
        if entries.len() < length {
            entries.push(format!("... {} more", length - entries.len()));
        }
        entries
    }

    fn members(&mut self, object: &JsObject) -> Vec<String> {
        // An ordinary object has no code that this call would run.
        let keys = object.own_property_keys(self.context).unwrap_or_default();
        let count = keys.len();
        let mut entries = Vec::new();
        for key in keys.iter().take(ENTRIES_MAX) {
            if self.room == 0 {
                break;
            }
            let is_hidden =
                object.borrow().properties().get(key).is_none_or(|found| found.enumerable() == Some(false));
            if is_hidden {
                continue;
            }
            let name = name_of(key);
            self.room = self.room.saturating_sub(name.len());
            let value = self.property(object, key);
            entries.push(format!("{name}: {value}"));
        }
        if count > ENTRIES_MAX || self.room == 0 && entries.len() < count {
            entries.push(LEFT_OUT.to_owned());
        }
        entries
    }

    fn property(&mut self, object: &JsObject, key: &PropertyKey) -> String {
        let found = object.borrow().properties().get(key);
        match found {
            None => self.spend("<empty>".to_owned()),
            Some(found) if found.is_accessor_descriptor() => self.spend("[Getter]".to_owned()),
            Some(found) => match found.value() {
                Some(value) => self.value(value),
                None => self.spend("undefined".to_owned()),
            },
        }
    }

    /// The text of the engine itself, for numbers, dates, errors, maps and sets.
    fn displayed(&mut self, value: &JsValue) -> String {
        let mut bounded = Bounded { text: String::new(), room: self.room };
        // The writer returns an error when there is no room left; that only means a cut.
        let cut = write!(bounded, "{}", value.display()).is_err();
        let text = bounded.text + if cut { LEFT_OUT } else { "" };
        self.spend(text)
    }

    fn spend(&mut self, mut text: String) -> String {
        if text.len() > self.room {
            text.truncate(text.floor_char_boundary(self.room));
            text.push_str(LEFT_OUT);
        }
        self.room = self.room.saturating_sub(text.len() + 2);
        text
    }
}

/// The value of an own property, unless it is a getter.
fn own(object: &JsObject, name: &str) -> Option<JsValue> {
    let key = PropertyKey::from(boa_engine::JsString::from(name));
    object.borrow().properties().get(&key)?.value().cloned()
}

/// The name of the object's class, unless it is a plain object.
fn class(object: &JsObject) -> Option<String> {
    let Some(prototype) = object.prototype() else { return Some("[null prototype]".to_owned()) };
    if prototype.is::<Proxy>() {
        return None;
    }
    prototype.prototype()?;
    let constructor = own(&prototype, "constructor")?.as_object()?;
    let name = own(&constructor, "name")?.as_string()?.to_std_string_lossy();
    (!name.is_empty() && name.len() <= LINE_CHARS_MAX).then_some(name)
}

fn name_of(key: &PropertyKey) -> String {
    match key {
        PropertyKey::String(name) => {
            let name = name.to_std_string_lossy();
            let plain = |char: char| char.is_alphanumeric() || char == '_' || char == '$';
            let is_plain =
                !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_numeric());
            if is_plain { name } else { quoted(&name) }
        }
        PropertyKey::Index(index) => index.get().to_string(),
        PropertyKey::Symbol(symbol) => {
            let about = symbol.description().map(|about| about.to_std_string_lossy()).unwrap_or_default();
            format!("[Symbol({about})]")
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            char if char == quote => out.extend(['\\', char]),
            char => out.push(char),
        }
    }
    out.push(quote);
    out
}

/// Joins the entries: on one line if it is short, otherwise one entry per line.
fn joined(class: Option<&str>, open: char, entries: &[String], close: char, depth: usize) -> String {
    let head = class.map(|class| format!("{class} ")).unwrap_or_default();
    if entries.is_empty() {
        return format!("{head}{open}{close}");
    }
    let length: usize = entries.iter().map(|entry| entry.len() + 2).sum();
    if length <= LINE_CHARS_MAX && !entries.iter().any(|entry| entry.contains('\n')) {
        return format!("{head}{open} {} {close}", entries.join(", "));
    }
    let (inner, outer) = ("  ".repeat(depth + 1), "  ".repeat(depth));
    format!("{head}{open}\n{inner}{}\n{outer}{close}", entries.join(&format!(",\n{inner}")))
}

/// A writer that returns an error when its room is used up.
struct Bounded {
    text: String,
    room: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.room);
        self.text.push_str(text.get(..end).unwrap_or_default());
        self.room -= end;
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
