//! Reads TOML with positions. A [`Table`] returns typed values. Wrong types and unknown keys are
//! recorded with their position, and reading goes on with the default, so that one run reports
//! every mistake. The defaults come from `keys`, which also generates `docs/configuration.md`.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::keys::{self, Default};

/// The parser's message for a key that is given twice.
const DUPLICATE_KEY: &str = "duplicate key";

/// A position in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSpan {
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The full key, such as `providers[0].base_url`.
    pub key: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: ConfigSpan,
    /// A sentence without a final period.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigSpan { file, line, column, key } = &self.place;
        write!(out, "{}:{line}:{column}: ", file.display())?;
        if key.is_empty() { write!(out, "{}", self.message) } else { write!(out, "{key}: {}", self.message) }
    }
}

pub(super) struct ConfigDocument<'t> {
    text: &'t str,
    file: &'t Path,
    root: Spanned<DeTable<'t>>,
    problems: RefCell<Vec<Problem>>,
}

impl<'t> ConfigDocument<'t> {
    /// Parses the syntax only; keys and values are checked when they are read.
    pub(super) fn parse(text: &'t str, file: &'t Path) -> Result<Self, Problem> {
        let root = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let (line, column) = position(text, span.start);
            let message = error.message().trim().replace('\n', ", ");
            // A duplicate key is the only syntax error whose span is exactly the key.
            let key = if message == DUPLICATE_KEY { text.get(span).unwrap_or_default() } else { "" };
            let place = ConfigSpan { file: file.to_path_buf(), line, column, key: key.to_owned() };
            Problem { place, message }
        })?;
        Ok(Self { text, file, root, problems: RefCell::default() })
    }

    /// The top-level table. Its keys are checked.
    pub(super) fn root(&self) -> Table<'_> {
        let table = Table {
            document: self,
            pattern: String::new(),
            path: String::new(),
            span: 0..0,
            entries: Some(self.root.get_ref()),
        };
        table.check_keys();
        table
    }

    /// The directory to which relative paths in the file refer.
    pub(super) fn directory(&self) -> &'t Path {
        self.file.parent().unwrap_or_else(|| Path::new(""))
    }

    /// All mistakes in the order of the file, one for each position.
    pub(super) fn problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.place.line, problem.place.column));
        // Further messages about the same position follow from the first one.
        problems.dedup_by(|later, first| later.place == first.place);
        problems
    }

    fn place(&self, span: &Range<usize>, key: &str) -> ConfigSpan {
        let (line, column) = position(self.text, span.start);
        ConfigSpan { file: self.file.to_path_buf(), line, column, key: key.to_owned() }
    }
}

/// One table of the file. An absent table has no entries, so every key has its default.
pub(super) struct Table<'a> {
    document: &'a ConfigDocument<'a>,
    /// The path as `keys` writes it: `models[].endpoints[]`.
    pattern: String,
    /// The path for people: `models[0].endpoints[1]`.
    path: String,
    span: Range<usize>,
    entries: Option<&'a DeTable<'a>>,
}

/// A value with its position, for error messages.
pub(super) struct ConfigValue<'a, T> {
    pub(super) value: T,
    document: &'a ConfigDocument<'a>,
    path: String,
    span: Range<usize>,
}

impl<T> ConfigValue<'_, T> {
    /// Records a mistake at this value.
    pub(super) fn reject(&self, message: impl Into<String>) {
        let place = self.place();
        self.document.problems.borrow_mut().push(Problem { place, message: message.into() });
    }

    pub(super) fn place(&self) -> ConfigSpan {
        self.document.place(&self.span, &self.path)
    }
}

impl<'a> Table<'a> {
    /// The table `key`. Its keys are checked.
    pub(super) fn table(&self, key: &str) -> Table<'a> {
        let found = self.find(key);
        let (span, entries) = match found {
            None => (self.span.clone(), None),
            Some(value) => {
                let entries = value.get_ref().as_table();
                if entries.is_none() {
                    self.wrong_type(key, value, "a table");
                }
                (value.span(), entries)
            }
        };
        let table = Table {
            document: self.document,
            pattern: keys::join(&self.pattern, key),
            path: keys::join(&self.path, key),
            span,
            entries,
        };
        table.check_keys();
        table
    }

    pub(super) fn tables(&self, key: &str) -> Vec<Table<'a>> {
        let mut tables = Vec::new();
        for (index, value) in self.array(key).into_iter().flatten().enumerate() {
            let path = format!("{}[{index}]", keys::join(&self.path, key));
            let Some(entries) = value.get_ref().as_table() else {
                self.note(&value.span(), &path, format!("expected a table, found {}", kind(value.get_ref())));
                continue;
            };
            let pattern = format!("{}[]", keys::join(&self.pattern, key));
            let table =
                Table { document: self.document, pattern, path, span: value.span(), entries: Some(entries) };
            table.check_keys();
            tables.push(table);
        }
        tables
    }

    /// The tables whose names the operator chooses, such as `[plugins.NAME]`.
    pub(super) fn named_tables(&self) -> Vec<(String, Table<'a>)> {
        let mut tables = Vec::new();
        for (name, value) in self.entries.into_iter().flatten() {
            let path = keys::join(&self.path, name.get_ref());
            let Some(entries) = value.get_ref().as_table() else {
                self.note(&value.span(), &path, format!("expected a table, found {}", kind(value.get_ref())));
                continue;
            };
            let pattern = keys::join(&self.pattern, keys::ANY_NAME);
            let span = name.span();
            let table = Table { document: self.document, pattern, path, span, entries: Some(entries) };
            table.check_keys();
            tables.push((name.get_ref().to_string(), table));
        }
        tables
    }

    /// A text: the given value or the default.
    pub(super) fn text(&self, key: &str) -> Option<ConfigValue<'a, String>> {
        self.read(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// A required text; empty after its absence was recorded as a mistake.
    pub(super) fn required_text(&self, key: &str) -> ConfigValue<'a, String> {
        self.text(key).unwrap_or_else(|| {
            if self.find(key).is_none() {
                self.note(&self.span, &self.path, format!("`{key}` is missing"));
            }
            self.value(key, String::new())
        })
    }

    /// One of two values of a key that has a default, by their names.
    pub(super) fn choice<T>(&self, key: &str, [(first, a), (second, b)]: [(&str, T); 2]) -> T {
        let written = self.required_text(key);
        if written.value == second {
            return b;
        }
        if written.value != first {
            written.reject(format!("expected `{first}` or `{second}`"));
        }
        a
    }

    /// A boolean; false without a value and a default.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.read(key, "true or false", |value| value.as_bool()).is_some_and(|read| read.value)
    }

    /// A whole number inside `range`: the given value or the default.
    pub(super) fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let read = self.read(key, "a whole number", |value| {
            let integer = value.as_integer()?;
            i128::from_str_radix(integer.as_str(), integer.radix()).ok()
        })?;
        let inside = u64::try_from(read.value).ok().filter(|number| range.contains(number));
        if inside.is_none() {
            read.reject(format!("{} is outside {} to {}", read.value, range.start(), range.end()));
        }
        inside
    }

    /// A finite number of at least 0: the given value or the default.
    pub(super) fn amount(&self, key: &str) -> Option<ConfigValue<'a, f64>> {
        let read = self.read(key, "a number", |value| {
            let written = value.as_float().map(toml::de::DeFloat::as_str);
            written.or_else(|| value.as_integer().map(toml::de::DeInteger::as_str))?.parse::<f64>().ok()
        })?;
        if read.value.is_finite() && read.value >= 0.0 {
            return Some(read);
        }
        read.reject("must be 0 or more");
        None
    }

    /// A list of texts, empty if absent.
    pub(super) fn texts(&self, key: &str) -> Vec<ConfigValue<'a, String>> {
        let mut texts = Vec::new();
        for (index, value) in self.array(key).into_iter().flatten().enumerate() {
            let path = format!("{}[{index}]", keys::join(&self.path, key));
            let Some(text) = value.get_ref().as_str() else {
                self.note(&value.span(), &path, format!("expected a text, found {}", kind(value.get_ref())));
                continue;
            };
            texts.push(ConfigValue {
                value: text.to_owned(),
                document: self.document,
                path,
                span: value.span(),
            });
        }
        texts
    }

    /// A list of port numbers, if given.
    pub(super) fn ports(&self, key: &str) -> Option<Vec<u16>> {
        let mut ports = Vec::new();
        for (index, value) in self.array(key)?.iter().enumerate() {
            let port = value.get_ref().as_integer().and_then(|integer| {
                u16::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|port| *port > 0)
            });
            let path = format!("{}[{index}]", keys::join(&self.path, key));
            match port {
                Some(port) => ports.push(port),
                None => self.note(&value.span(), &path, "expected a port from 1 to 65535".to_owned()),
            }
        }
        Some(ports)
    }

    /// The keys of this table, with their values read as lists of texts.
    pub(super) fn lists_by_name(&self) -> Vec<(ConfigValue<'a, String>, Vec<ConfigValue<'a, String>>)> {
        let mut lists = Vec::new();
        for (name, _) in self.entries.into_iter().flatten() {
            let path = keys::join(&self.path, name.get_ref());
            let text = name.get_ref().to_string();
            let values = self.texts(&text);
            lists.push((
                ConfigValue { value: text, document: self.document, path, span: name.span() },
                values,
            ));
        }
        lists
    }

    /// The keys of this table.
    pub(super) fn names(&self) -> Vec<ConfigValue<'a, String>> {
        let names = self.entries.into_iter().flatten();
        names
            .map(|(name, _)| ConfigValue {
                value: name.get_ref().to_string(),
                document: self.document,
                path: keys::join(&self.path, name.get_ref()),
                span: name.span(),
            })
            .collect()
    }

    /// The value of `key` as JSON; an empty object if absent.
    pub(super) fn json(&self, key: &str) -> serde_json::Value {
        self.find(key)
            .map_or_else(|| serde_json::Value::Object(serde_json::Map::new()), |v| json(v.get_ref()))
    }

    /// The elements of the list `key` as JSON, each with its position.
    pub(super) fn jsons(&self, key: &str) -> Vec<ConfigValue<'a, serde_json::Value>> {
        let path = keys::join(&self.path, key);
        let elements = self.array(key).into_iter().flatten().enumerate();
        elements
            .map(|(index, value)| ConfigValue {
                value: json(value.get_ref()),
                document: self.document,
                path: format!("{path}[{index}]"),
                span: value.span(),
            })
            .collect()
    }

    /// The directory to which relative paths in the file refer.
    pub(super) fn directory(&self) -> &'a Path {
        self.document.directory()
    }

    /// Gives `value` the position of `key`, or of this table if `key` is empty or absent.
    pub(super) fn value<T>(&self, key: &str, value: T) -> ConfigValue<'a, T> {
        let path = if key.is_empty() { self.path.clone() } else { keys::join(&self.path, key) };
        let span = self.find(key).map_or_else(|| self.span.clone(), Spanned::span);
        ConfigValue { value, document: self.document, path, span }
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries?.get(key)
    }

    fn array(&self, key: &str) -> Option<&'a DeArray<'a>> {
        let value = self.find(key)?;
        let array = value.get_ref().as_array();
        if array.is_none() {
            self.wrong_type(key, value, "a list");
        }
        array
    }

    /// The given value of a key, else its default from `keys`.
    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<ConfigValue<'a, T>> {
        if let Some(given) = self.find(key) {
            let converted = convert(given.get_ref());
            if converted.is_none() {
                self.wrong_type(key, given, expected);
            }
            return converted.map(|value| self.value(key, value));
        }
        let Default::Is(written) = keys::find(&keys::join(&self.pattern, key))?.default else { return None };
        let default = DeValue::parse(written).ok()?;
        convert(default.get_ref()).map(|value| self.value(key, value))
    }

    /// Records keys that do not exist.
    fn check_keys(&self) {
        for (name, _) in self.entries.into_iter().flatten() {
            let pattern = keys::join(&self.pattern, name.get_ref());
            if keys::find(&pattern).is_none() && !keys::is_table(&pattern) {
                let message = keys::unknown(&self.pattern, name.get_ref());
                self.note(&name.span(), &keys::join(&self.path, name.get_ref()), message);
            }
        }
    }

    fn wrong_type(&self, key: &str, found: &Spanned<DeValue<'_>>, expected: &str) {
        let message = format!("expected {expected}, found {}", kind(found.get_ref()));
        self.note(&found.span(), &keys::join(&self.path, key), message);
    }

    fn note(&self, span: &Range<usize>, path: &str, message: String) {
        let place = self.document.place(span, path);
        self.document.problems.borrow_mut().push(Problem { place, message });
    }
}

/// Line and column of a byte offset, both counted from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn json(value: &DeValue<'_>) -> serde_json::Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(serde_json::Value::Null, Into::into)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(serde_json::Value::Null, Into::into),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(date) => date.to_string().into(),
        DeValue::Array(array) => array.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(name, item)| (name.get_ref().to_string(), json(item.get_ref()))).collect()
        }
    }
}
