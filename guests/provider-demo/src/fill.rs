//! Makes a JSON value that a schema accepts, from the content of a message.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use crate::hints::Hints;
use crate::schema::{self, Kind};
use crate::words;

/// Below this depth a value is made as small as the schema allows.
const DEPTH_SMALL: usize = 6;
/// Below this depth every value is null: schemas that nest deeper are usually recursive.
const DEPTH_MAX: usize = 24;
/// The largest number of values in one document, against schemas that grow exponentially.
const VALUES_MAX: usize = 4000;
/// The largest number of items made for `minItems`.
const ITEMS_MAX: u64 = 256;

/// Fills the values of one schema document.
pub(crate) struct Filler<'a> {
    root: &'a Value,
    hints: Hints,
    /// Stems of the words in the function's name, which are not used as arguments.
    said: Vec<String>,
    /// Whether optional fields are filled even when the message has no value for them.
    eager: bool,
    values: usize,
}

impl<'a> Filler<'a> {
    /// For the arguments of the function called `name`. Optional fields are left out when the
    /// message says nothing about them.
    pub(crate) fn for_arguments(root: &'a Value, message: &str, name: &str) -> Self {
        Self { root, hints: Hints::of(message), said: words::stems(name), eager: false, values: 0 }
    }

    /// For an answer. If a document has no required fields, all its fields are filled.
    pub(crate) fn for_answer(root: &'a Value, message: &str) -> Self {
        Self { root, hints: Hints::of(message), said: Vec::new(), eager: true, values: 0 }
    }

    /// Makes the document.
    pub(crate) fn fill(mut self) -> Value {
        self.value(self.root, "", 0)
    }

    fn value(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        self.values += 1;
        if depth > DEPTH_MAX || self.values > VALUES_MAX {
            return Value::Null;
        }
        let small = depth > DEPTH_SMALL;
        let root = self.root;
        let schema = schema::resolve(schema, root, small);
        let schema = &*schema;
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let choice =
                self.mentioned(choices).or_else(|| schema.get("default")).or_else(|| choices.first());
            return choice.cloned().unwrap_or(Value::Null);
        }
        match schema::kind(schema, small) {
            Kind::Object => self.object(schema, depth),
            Kind::Array => self.array(schema, name, depth),
            Kind::String => Value::String(self.string(schema, name)),
            Kind::Number => self.number(schema, false),
            Kind::Integer => self.number(schema, true),
            Kind::Boolean => Value::Bool(!self.is_negated()),
            Kind::Null => Value::Null,
        }
    }

    /// The choice that the message mentions; the longest if there are several.
    fn mentioned<'c>(&self, choices: &'c [Value]) -> Option<&'c Value> {
        let text = self.hints.text.to_lowercase();
        let mentioned = |choice: &&Value| match choice {
            Value::String(word) => contains_word(&text, &word.to_lowercase()),
            Value::Number(number) => contains_word(&text, &number.to_string()),
            _ => false,
        };
        choices.iter().filter(mentioned).max_by_key(|choice| choice.as_str().map_or(0, str::len))
    }

    fn is_negated(&self) -> bool {
        const NEGATIONS: [&str; 9] =
            ["no", "not", "false", "off", "without", "disable", "disabled", "never", "don't"];
        let text = self.hints.text.to_lowercase();
        NEGATIONS.iter().any(|word| contains_word(&text, word))
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = schema.get("required").and_then(Value::as_array);
        let names: HashSet<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
        let is_required = |name: &str| names.contains(name);
        let all = self.eager && required.is_none_or(Vec::is_empty) && depth <= DEPTH_SMALL;
        let mut filled = Map::new();
        for (name, property) in properties {
            if is_required(name) || all {
                filled.insert(name.clone(), self.value(property, name, depth + 1));
            }
        }
        for (name, property) in properties {
            if !filled.contains_key(name)
                && depth <= DEPTH_SMALL
                && self.has_hint(property, name, required.is_none())
            {
                filled.insert(name.clone(), self.value(property, name, depth + 1));
            }
        }
        // A required name may be missing from `properties`.
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !filled.contains_key(name) {
                let described = schema.get("additionalProperties").filter(|schema| schema.is_object());
                let value = self.value(described.unwrap_or(&Value::Bool(true)), name, depth + 1);
                filled.insert(name.to_owned(), value);
            }
        }
        // Put the fields into the order of the schema.
        let mut ordered: Map<String, Value> = Map::new();
        for name in properties.keys() {
            ordered.extend(filled.get(name).map(|value| (name.clone(), value.clone())));
        }
        ordered.extend(filled.into_iter().filter(|(name, _)| !properties.contains_key(name)));
        Value::Object(ordered)
    }

    /// Whether the message says something about an optional field.
    fn has_hint(&self, schema: &Value, name: &str, nothing_required: bool) -> bool {
        let schema = schema::resolve(schema, self.root, false);
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return self.mentioned(choices).is_some();
        }
        if schema.get("const").is_some() {
            return false;
        }
        let said = words::stems(&self.hints.text);
        let is_named = words::stems(name).iter().any(|stem| !words::is_filler(stem) && said.contains(stem));
        let mut left = self.hints.clone();
        match schema::kind(&schema, false) {
            Kind::String => {
                let found = left.next_quoted().or_else(|| left.next_name()).is_some();
                self.special(&schema, name).is_some_and(|(found, _)| found.is_some())
                    || (self.special(&schema, name).is_none() && found && (is_named || nothing_required))
            }
            Kind::Number | Kind::Integer => {
                left.next_number(|_| true).is_some() && (is_named || nothing_required)
            }
            Kind::Boolean => is_named,
            Kind::Object | Kind::Array | Kind::Null => false,
        }
    }

    fn array(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        let limit = |key| schema.get(key).and_then(Value::as_u64);
        let least = limit("minItems").unwrap_or(0).min(ITEMS_MAX);
        let most = limit("maxItems").unwrap_or(ITEMS_MAX);
        let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rest = schema.get("items").filter(|items| items.is_object());
        let unique = schema.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false);
        let usual = if depth > DEPTH_SMALL { least } else { least.max(1).max(first.len() as u64) };
        let mut items: Vec<Value> = Vec::new();
        while (items.len() as u64) < most {
            let schema = first.get(items.len()).or(rest);
            if items.len() as u64 >= usual && !schema.is_some_and(|schema| self.has_more(schema)) {
                break;
            }
            let Some(schema) = schema.or((items.len() as u64).lt(&least).then_some(&Value::Bool(true)))
            else {
                break;
            };
            let item = self.value(schema, name, depth + 1);
            let repeated = unique && items.contains(&item);
            let item = if repeated { distinct(schema, &items, item) } else { Some(item) };
            let Some(item) = item else { break };
            items.push(item);
        }
        Value::Array(items)
    }

    /// Whether the message has values left that could be further items.
    fn has_more(&self, schema: &Value) -> bool {
        let schema = schema::resolve(schema, self.root, false);
        let mut left = self.hints.clone();
        match schema::kind(&schema, false) {
            Kind::Number | Kind::Integer => left.next_number(|number| accepts(&schema, number)).is_some(),
            Kind::String => schema.get("enum").is_none() && left.next_quoted().is_some(),
            _ => false,
        }
    }

    fn string(&mut self, schema: &Value, name: &str) -> String {
        let text = match self.special(schema, name) {
            Some((found, otherwise)) => found.unwrap_or_else(|| otherwise.to_owned()),
            None => self.free_text(schema, name),
        };
        fit_length(text, schema)
    }

    /// For a field of a known form: the value of that form in the message, and a fallback value.
    /// `None` for free text.
    fn special(&self, schema: &Value, name: &str) -> Option<(Option<String>, &'static str)> {
        let name = name.to_lowercase();
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let (fits, otherwise): (fn(&str) -> bool, _) = match format {
            "date-time" => {
                (|word| word.len() >= 20 && is_date(word) && word.contains('T'), "2026-01-01T00:00:00Z")
            }
            "date" => (|word| word.len() == 10 && is_date(word), "2026-01-01"),
            "time" => (|_| false, "12:00:00Z"),
            "duration" => (|_| false, "P1D"),
            "email" => (is_email, "someone@example.com"),
            "uri" | "url" | "uri-reference" | "iri" => (is_url, "https://example.com/"),
            "uuid" => (is_uuid, "00000000-0000-4000-8000-000000000000"),
            "ipv4" => (|_| false, "192.0.2.1"),
            "ipv6" => (|_| false, "2001:db8::1"),
            "hostname" => (|_| false, "example.com"),
            _ if name.contains("timezone") || name.contains("time_zone") || name == "tz" => {
                (is_timezone, "UTC")
            }
            _ if name.contains("email") && self.hints.word(is_email).is_some() => (is_email, ""),
            _ if (name.contains("url") || name.contains("uri")) && self.hints.word(is_url).is_some() => {
                (is_url, "")
            }
            _ => return None,
        };
        Some((self.hints.word(fits).map(str::to_owned), otherwise))
    }

    fn free_text(&mut self, schema: &Value, name: &str) -> String {
        if let Some(text) = self.hints.next_quoted() {
            return text;
        }
        if is_whole_message(name) && !self.hints.text.is_empty() {
            return self.hints.text.clone();
        }
        if let Some(text) = self.hints.next_name() {
            return text;
        }
        if let Some(Value::String(text)) = schema.get("default") {
            return text.clone();
        }
        let rest = self.rest_of_message();
        if !rest.is_empty() {
            return rest;
        }
        if self.hints.text.is_empty() { "nothing was said".to_owned() } else { self.hints.text.clone() }
    }

    /// The words of the message, without fillers and words that name the function.
    fn rest_of_message(&self) -> String {
        let tells = |word: &&str| {
            let stems = words::stems(word);
            !stems.is_empty() && !stems.iter().all(|stem| words::is_filler(stem) || self.said.contains(stem))
        };
        let bare =
            |word: &'_ str| word.trim_matches(|character: char| !character.is_alphanumeric()).to_owned();
        self.hints.text.split_whitespace().filter(tells).map(bare).collect::<Vec<_>>().join(" ")
    }

    fn number(&mut self, schema: &Value, integer: bool) -> Value {
        let accepts = |number: f64| (!integer || number.fract() == 0.0) && accepts(schema, number);
        let default = schema.get("default").and_then(Value::as_f64);
        let chosen = self.hints.next_number(accepts).or(default).or_else(|| {
            let bound = |key| schema.get(key).and_then(Value::as_f64);
            let step = bound("multipleOf").filter(|step| *step > 0.0).unwrap_or(1.0);
            let lowest = bound("minimum").or(bound("exclusiveMinimum")).unwrap_or(0.0);
            let highest = bound("maximum").or(bound("exclusiveMaximum")).unwrap_or(0.0);
            let up = (lowest / step).ceil() * step;
            let down = (highest / step).floor() * step;
            [0.0, up, up + step, down, down - step, lowest.midpoint(highest), lowest]
                .into_iter()
                .find(|n| accepts(*n))
        });
        json_number(chosen.unwrap_or(0.0))
    }
}

/// Whether a number keeps the limits of its schema.
fn accepts(schema: &Value, number: f64) -> bool {
    let keeps = |key, holds: fn(f64, f64) -> bool| {
        schema.get(key).and_then(Value::as_f64).is_none_or(|limit| holds(number, limit))
    };
    keeps("minimum", |number, limit| number >= limit)
        && keeps("maximum", |number, limit| number <= limit)
        && keeps("exclusiveMinimum", |number, limit| number > limit)
        && keeps("exclusiveMaximum", |number, limit| number < limit)
        && keeps("multipleOf", |number, step| step <= 0.0 || (number / step).fract() == 0.0)
}

fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Value::Number(Number::from(number as i64));
    }
    Number::from_f64(number).map_or(Value::from(0), Value::Number)
}

/// An item that differs from all others, for arrays with `uniqueItems`.
fn distinct(schema: &Value, items: &[Value], item: Value) -> Option<Value> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return choices.iter().find(|choice| !items.contains(choice)).cloned();
    }
    let nth = items.len() + 1;
    let other = match item {
        Value::String(text) => Value::String(format!("{text} {nth}")),
        Value::Number(number) => json_number(number.as_f64()? + nth as f64),
        Value::Bool(value) => Value::Bool(!value),
        _ => return None,
    };
    (!items.contains(&other)).then_some(other)
}

fn fit_length(mut text: String, schema: &Value) -> String {
    let limit = |key| schema.get(key).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
    if let Some((end, _)) = limit("maxLength").and_then(|most| text.char_indices().nth(most)) {
        text.truncate(end);
    }
    let length = text.chars().count();
    let missing = limit("minLength").unwrap_or(0).min(10_000).saturating_sub(length);
    text.extend(std::iter::repeat_n('.', missing));
    text
}

/// Names of fields that take the whole message instead of a part of it.
fn is_whole_message(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "answer",
        "body",
        "code",
        "command",
        "content",
        "expression",
        "input",
        "message",
        "prompt",
        "query",
        "question",
        "request",
        "summary",
        "text",
    ];
    NAMES.contains(&name.to_lowercase().as_str())
}

fn contains_word(text: &str, word: &str) -> bool {
    let is_edge = |character: Option<char>| !character.is_some_and(char::is_alphanumeric);
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let behind = text.get(at + word.len()..).and_then(|text| text.chars().next());
            is_edge(before) && is_edge(behind)
        })
}

fn is_date(word: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        word.get(range).is_some_and(|t| t.bytes().all(|b| b.is_ascii_digit()))
    };
    digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && word.get(4..5) == Some("-")
        && word.get(7..8) == Some("-")
}

fn is_email(word: &str) -> bool {
    word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
}

fn is_url(word: &str) -> bool {
    word.starts_with("https://") || word.starts_with("http://")
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        && word.matches('-').count() == 4
}

fn is_timezone(word: &str) -> bool {
    let area = word.split_once('/').is_some_and(|(area, place)| {
        let capital = |text: &str| text.chars().next().is_some_and(|first| first.is_ascii_uppercase());
        capital(area) && capital(place) && area.bytes().all(|b| b.is_ascii_alphabetic())
    });
    area || word == "UTC"
}
