//! Turns text that is almost JSON into JSON.
//!
//! A lenient reader writes strict JSON while it reads. It never guesses words: a text that it cannot
//! read as a value is not JSON and stays unchanged.

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use crate::wanted::Wanted;

/// How many positions in the text are tried as the start of a value.
const STARTS_MAX: usize = 32;
/// The deepest nesting of brackets. JSON parsers do not accept deeper ones either.
const DEPTH_MAX: usize = 100;

/// Strict JSON for `text`; `None` when it is already valid or beyond repair, and when it is not clear
/// that the value found is the whole answer.
pub(crate) fn repaired(text: &str, wanted: Wanted) -> Option<String> {
    if is_json(text) {
        return None;
    }
    let (before, body) = fenced(text, wanted).unwrap_or(("", text));
    let is_fenced = body.len() < text.len();
    // Empty brackets in prose are not an answer.
    let is_answer = |json: &str| json.len() > 2 || (is_fenced && body.trim() == json);
    let (start, length, json) = first_value(body, wanted, is_answer)?;
    let start = before.len() + start;
    let (before, after) = (text.get(..start)?, text.get(start + length..)?);
    let is_one = first_value(after, wanted, |json| json.len() > 2).is_none();
    (is_one && !is_enclosed(before, after, wanted)).then_some(json)
}

/// Whether a parser accepts `text`. It refuses unpaired surrogates and numbers that are too large, so
/// that strings and numbers have to be read for this.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok()
}

/// The content of the first fenced block, closed or not, and the text before it. A fence behind a
/// bracket may be text of the answer.
fn fenced(text: &str, wanted: Wanted) -> Option<(&str, &str)> {
    let (outside, inside) = text.split_once("```")?;
    if outside.contains(|character| wanted.begins_with(character)) {
        return None;
    }
    let inside = inside.split_once('\n').map_or(inside, |(_, inside)| inside);
    let before = text.get(..text.len() - inside.len())?;
    let end = inside.rfind("```").unwrap_or(inside.len());
    inside.get(..end).filter(|inside| inside.contains(['{', '['])).map(|inside| (before, inside))
}

/// The first value in `text`: where it begins, its length there, and strict JSON for it.
fn first_value(
    text: &str,
    wanted: Wanted,
    is_answer: impl Fn(&str) -> bool,
) -> Option<(usize, usize, String)> {
    let starts = text.char_indices().filter(|(_, character)| wanted.begins_with(*character));
    starts.take(STARTS_MAX).find_map(|(start, _)| {
        let text = text.get(start..)?;
        let (length, json) = whole_value(text).or_else(|| Reader::new(text).read())?;
        is_answer(&json).then_some((start, length, json))
    })
}

/// Whether brackets that cannot be read enclose what stands between two texts: it is a part then.
fn is_enclosed(before: &str, after: &str, wanted: Wanted) -> bool {
    let surplus = |text: &str| {
        let opened = text.chars().filter(|character| wanted.begins_with(*character)).count();
        let closed = text.chars().filter(|character| wanted.ends_with(*character)).count();
        (opened.saturating_sub(closed), closed.saturating_sub(opened))
    };
    surplus(before).0 > 0 && surplus(after).1 > 0
}

/// The valid value at the start of `text`, and its length.
fn whole_value(text: &str) -> Option<(usize, String)> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    values.next()?.ok()?;
    let length = values.byte_offset();
    Some((length, text.get(..length)?.to_owned()))
}

/// The error when there is no value.
struct NoValue;

struct Reader<'a> {
    rest: &'a str,
    out: String,
    depth: usize,
    /// The closing brackets that are still expected, outermost first.
    open: Vec<char>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, out: String::with_capacity(text.len() + 8), depth: 0, open: Vec::new() }
    }

    /// The length of the value, and strict JSON for it.
    fn read(mut self) -> Option<(usize, String)> {
        let length = self.rest.len();
        self.value().ok()?;
        is_json(&self.out).then_some((length - self.rest.len(), self.out))
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, character: char) {
        self.rest = self.rest.strip_prefix(character).unwrap_or(self.rest);
    }

    /// Skips white space, comments, and an ellipsis that marks an omission.
    fn skip_space(&mut self) {
        loop {
            let before = self.rest.len();
            self.rest = self.rest.trim_start();
            if self.rest.starts_with("//") {
                self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            }
            self.rest = self.rest.strip_prefix("...").unwrap_or(self.rest);
            if self.rest.len() == before {
                return;
            }
        }
    }

    fn value(&mut self) -> Result<(), NoValue> {
        self.skip_space();
        match self.peek() {
            Some('{') => self.bracketed('{', Self::member),
            Some('[') => self.bracketed('[', Self::value),
            Some(quote @ ('"' | '\'' | '“' | '`')) => {
                self.string(quote);
                Ok(())
            }
            Some(_) => self.word(),
            None => Err(NoValue),
        }
    }

    /// Reads an object or array. `element` reads one element between the commas.
    fn bracketed(
        &mut self,
        bracket: char,
        element: fn(&mut Self) -> Result<(), NoValue>,
    ) -> Result<(), NoValue> {
        let close = if bracket == '{' { '}' } else { ']' };
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(NoValue);
        }
        self.skip(bracket);
        self.out.push(bracket);
        self.open.push(close);
        let start = self.out.len();
        loop {
            self.skip_space();
            match self.peek() {
                None => break,
                Some(',') => self.skip(','),
                Some(end @ ('}' | ']')) if end == close => {
                    self.skip(end);
                    break;
                }
                // This closes an outer bracket, so the closing bracket here is missing.
                Some(end @ ('}' | ']')) if self.open.contains(&end) => break,
                Some(end @ ('}' | ']')) => self.skip(end),
                Some(_) => self.element_or_nothing(self.out.len() == start, element)?,
            }
        }
        self.open.pop();
        self.depth -= 1;
        self.out.push(close);
        Ok(())
    }

    /// Writes an element and the comma before it. If the end of the text cuts the element off, both
    /// are removed again.
    fn element_or_nothing(
        &mut self,
        is_first: bool,
        element: fn(&mut Self) -> Result<(), NoValue>,
    ) -> Result<(), NoValue> {
        let (before, depth) = (self.out.len(), self.depth);
        if !is_first {
            self.out.push(',');
        }
        match element(self) {
            Err(NoValue) if self.rest.is_empty() && self.depth == depth => {
                self.out.truncate(before);
                Ok(())
            }
            other => other,
        }
    }

    fn member(&mut self) -> Result<(), NoValue> {
        match self.peek() {
            Some(quote @ ('"' | '\'' | '“' | '`')) => self.string(quote),
            _ => {
                let word = self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
                if word.is_empty() {
                    return Err(NoValue);
                }
                self.out.push_str(&Value::from(word).to_string());
            }
        }
        self.skip_space();
        if self.peek() != Some(':') {
            return Err(NoValue);
        }
        self.skip(':');
        self.out.push(':');
        self.skip_space();
        match self.peek() {
            // The value is missing or was cut off.
            None | Some(',' | '}' | ']') => {
                self.out.push_str("null");
                Ok(())
            }
            _ if is_cut_number(self.rest) => {
                self.rest = "";
                self.out.push_str("null");
                Ok(())
            }
            Some(_) => self.value(),
        }
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Reads a literal or a number in the spelling of JSON or of another language.
    fn word(&mut self) -> Result<(), NoValue> {
        if is_cut_number(self.rest) {
            self.rest = "";
            return Err(NoValue);
        }
        let word = self.take_while(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_' | ':'));
        let literal = match word.to_ascii_lowercase().as_str() {
            "true" => "true",
            "false" => "false",
            "null" | "none" | "undefined" | "nan" => "null",
            // A literal that the end of the text cuts off.
            "t" | "tr" | "tru" if self.rest.is_empty() => "true",
            "f" | "fa" | "fal" | "fals" if self.rest.is_empty() => "false",
            "n" | "nu" | "nul" if self.rest.is_empty() => "null",
            _ => "",
        };
        if !literal.is_empty() {
            self.out.push_str(literal);
            return Ok(());
        }
        if !word.contains(|character: char| character.is_ascii_digit()) {
            return Err(NoValue);
        }
        self.out.push_str(&number(word));
        Ok(())
    }

    /// Reads a string that begins with `quote`, closed or not.
    fn string(&mut self, quote: char) {
        let close = if quote == '“' { '”' } else { quote };
        self.skip(quote);
        self.out.push('"');
        let mut rest = self.rest.chars();
        while let Some(character) = rest.next() {
            match character {
                '\\' => escape(&mut rest, &mut self.out),
                _ if character == close && ends_string(rest.as_str(), quote) => break,
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                control if control < ' ' => {}
                character => self.out.push(character),
            }
        }
        self.rest = rest.as_str();
        self.out.push('"');
    }
}

/// Copies the escape after a backslash if JSON has it, otherwise the character it stands for.
fn escape(rest: &mut std::str::Chars<'_>, out: &mut String) {
    let behind = rest.as_str();
    match rest.next() {
        Some(known @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) => out.extend(['\\', known]),
        Some('u') => {
            let hex = behind.get(1..5).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            if let Some(hex) = hex {
                // An unpaired surrogate is detected when the whole result is parsed.
                out.push_str("\\u");
                out.push_str(hex);
                *rest = behind.get(5..).unwrap_or_default().chars();
            }
        }
        Some('\n') | None => {}
        Some(other) => out.push(other),
    }
}

/// Whether a closing quote really ends the string: it does if a character follows that may follow a
/// string, or a new line that begins with a quote.
fn ends_string(behind: &str, quote: char) -> bool {
    let next = behind.trim_start();
    match next.chars().next() {
        None | Some(',' | ':' | '}' | ']') => true,
        Some('/') => next.starts_with("//") || next.starts_with("/*"),
        Some(character) => {
            character == quote && behind.trim_start_matches([' ', '\t', '\r']).starts_with('\n')
        }
    }
}

/// Whether the end of the text cuts off a number. What is left of it is another number.
fn is_cut_number(rest: &str) -> bool {
    let belongs = |character: char| character.is_ascii_digit() || "+-._eE".contains(character);
    rest.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        && (rest.chars().all(belongs)
            || rest.strip_prefix(['-', '+']).is_some_and(|behind| behind.trim_start().is_empty()))
}

/// A number in JSON's spelling, or the word as a string if it is not a number.
fn number(word: &str) -> String {
    // A number that is too large stays one, and no parser accepts the result.
    let is_number = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    let plain = word.strip_prefix('+').unwrap_or(word).trim_end_matches(['.', 'e', 'E', '+', '-']);
    let plain = match plain.strip_prefix('.') {
        Some(fraction) => format!("0.{fraction}"),
        None => plain.replace('_', ""),
    };
    if is_number(&plain) { plain } else { Value::from(word).to_string() }
}
