//! Searches output for a secret value in every form in which it could be encoded.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::fmt::Write as _;

/// The encoding of a value in some output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    Raw,
    JsonEscaped,
    JsonAscii,
    Debug,
    Percent,
    /// Percent-encoded, with a plus for a space.
    Query,
    Hex,
    HexUpper,
    /// Standard alphabet. The value begins at this offset in a group of three bytes.
    Base64(usize),
    /// URL-safe alphabet, with the same offset.
    Base64Url(usize),
    /// `[113, 55, ...]`
    Numbers,
}

pub const FORMS: [Form; 15] = [
    Form::Raw,
    Form::JsonEscaped,
    Form::JsonAscii,
    Form::Debug,
    Form::Percent,
    Form::Query,
    Form::Hex,
    Form::HexUpper,
    Form::Base64(0),
    Form::Base64(1),
    Form::Base64(2),
    Form::Base64Url(0),
    Form::Base64Url(1),
    Form::Base64Url(2),
    Form::Numbers,
];

/// The text encoded in this form, with other bytes around it.
pub fn written(form: Form, text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let around = |lead: usize| [&b"~~~"[..lead], bytes, b"~~~~"].concat();
    match form {
        Form::Raw => bytes.to_vec(),
        Form::JsonEscaped => serde_json::to_vec(text).unwrap(),
        Form::JsonAscii => json_ascii(text).into_bytes(),
        Form::Debug => format!("{text:?}").into_bytes(),
        Form::Percent => percent(bytes, "%20").into_bytes(),
        Form::Query => percent(bytes, "+").into_bytes(),
        Form::Hex => hex(bytes, false).into_bytes(),
        Form::HexUpper => hex(bytes, true).into_bytes(),
        Form::Base64(lead) => STANDARD.encode(around(lead)).into_bytes(),
        Form::Base64Url(lead) => URL_SAFE.encode(around(lead)).into_bytes(),
        Form::Numbers => format!("{bytes:?}").into_bytes(),
    }
}

fn json_ascii(text: &str) -> String {
    let escaped = serde_json::to_string(text).unwrap();
    let mut ascii = String::new();
    for unit in escaped.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ 0..0x80) => ascii.push(byte.into()),
            _ => write!(ascii, "\\u{unit:04x}").unwrap(),
        }
    }
    ascii
}

fn percent(bytes: &[u8], space: &str) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push((*byte).into()),
            b' ' => text.push_str(space),
            _ => write!(text, "%{byte:02X}").unwrap(),
        }
    }
    text
}

fn hex(bytes: &[u8], upper: bool) -> String {
    let mut text = String::new();
    for byte in bytes {
        if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") }.unwrap();
    }
    text
}

/// Searches for parts of a value in every form.
pub struct Canary {
    value: String,
    marks: Vec<(Form, Vec<u8>)>,
}

/// The length of a part, in bytes. A form that is cut off or wrapped in the middle is found by its
/// other part.
const PART: usize = 24;

impl Canary {
    /// The length of the value must be a multiple of the part length.
    pub fn new(value: &str) -> Self {
        assert_eq!(value.len() % PART, 0, "{} bytes", value.len());
        let parts = (0..value.len()).step_by(PART).map(|at| &value[at..at + PART]);
        let marks = parts.flat_map(|part| FORMS.iter().map(move |form| (*form, mark(*form, part)))).collect();
        Self { value: value.to_owned(), marks }
    }

    pub fn value(&self) -> &str {
        &self.value
    }

    /// The forms in which these bytes contain the value or a part of it.
    pub fn found(&self, bytes: &[u8]) -> Vec<Form> {
        let mut found: Vec<Form> = Vec::new();
        for (form, mark) in &self.marks {
            if !found.contains(form) && memchr::memmem::find(bytes, mark).is_some() {
                found.push(*form);
            }
        }
        found
    }
}

/// The bytes of an encoded part that do not depend on its surroundings.
fn mark(form: Form, part: &str) -> Vec<u8> {
    let whole = written(form, part);
    match form {
        Form::JsonEscaped | Form::JsonAscii | Form::Debug | Form::Numbers => {
            whole[1..whole.len() - 1].to_vec()
        }
        // Groups of three bytes that also contain a neighbouring byte are left out.
        Form::Base64(lead) | Form::Base64Url(lead) => {
            let first = if lead == 0 { 0 } else { 4 };
            let groups = (lead + part.len()) / 3;
            whole[first..groups * 4].to_vec()
        }
        _ => whole,
    }
}
