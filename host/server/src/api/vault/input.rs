//! The bodies of vault requests. A secret's value is decoded from the body, which is wiped,
//! directly into a buffer that is wiped too. The JSON parser only finds its position, because a
//! parser that decodes escapes uses buffers that are not wiped.

use std::collections::HashSet;
use std::fmt;

use cofferdam_store::{Hosts, HostsError, SecretName, SecretValue};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::media::{self, ContentType};
use crate::command::unescape;
use crate::fault::{Fault, FieldError};

/// The maximum length of a `PUT` body, in bytes: the longest value with every character escaped,
/// and a hundred hosts.
pub(super) const PUT_BYTES_MAX: usize = 1024 * 1024;
/// The maximum length of a copy request's body, in bytes.
pub(super) const COPY_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of elements in a list.
const LIST_MAX: usize = 100;

/// The body of `PUT`.
pub(super) struct Put {
    pub(super) hosts: Hosts,
    pub(super) value: SecretValue,
}

#[derive(Deserialize)]
struct WrittenPut<'b> {
    hosts: Option<List>,
    #[serde(borrow)]
    value: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct WrittenCopy {
    names: Option<List>,
}

impl Put {
    /// # Errors
    ///
    /// The body does not have the expected form. The fault contains nothing of the body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Fault> {
        let written: WrittenPut<'_> = object(body)?;
        let List(hosts) = written.hosts.ok_or_else(|| flaw("hosts", "must be a list"))?;
        let hosts = Hosts::parse(&hosts).map_err(|error| match error {
            HostsError::Count => flaw("hosts", "must have 1 to 100 entries"),
            HostsError::Host { index } => {
                Fault::InvalidVaultRequest(FieldError::in_list("hosts", index, "must be an exact host name"))
            }
        })?;
        let text = written.value.and_then(|value| unescape(value.get()));
        let text = text.ok_or_else(|| flaw("value", "must be a text"))?;
        let value = SecretValue::new(text).map_err(|_| flaw("value", "must have 1 to 65536 characters"))?;
        Ok(Self { hosts, value })
    }
}

/// Reads the list of names of a copy request.
///
/// # Errors
///
/// The body does not have the expected form.
pub(super) fn names(body: &[u8]) -> Result<Vec<SecretName>, Fault> {
    let written: WrittenCopy = object(body)?;
    let List(written) = written.names.ok_or_else(|| flaw("names", "must be a list"))?;
    if !(1..=LIST_MAX).contains(&written.len()) {
        return Err(flaw("names", "must have 1 to 100 entries"));
    }
    let mut names: Vec<SecretName> = Vec::with_capacity(written.len());
    let mut seen = HashSet::with_capacity(written.len());
    for (index, text) in written.iter().enumerate() {
        let complain = |reason| Fault::InvalidVaultRequest(FieldError::in_list("names", index, reason));
        let name: SecretName = text.parse().map_err(|_| complain("must be a name of a secret"))?;
        if !seen.insert(name.clone()) {
            return Err(complain("must stand there once"));
        }
        names.push(name);
    }
    Ok(names)
}

/// Accepts only uncompressed JSON.
///
/// # Errors
///
/// The headers say otherwise, or `Content-Type` is missing.
pub(super) fn check_headers(headers: &HeaderMap) -> Result<(), Fault> {
    let plain = |encoding: &http::HeaderValue| encoding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return Err(flaw("content-encoding", "must not be compressed"));
    }
    match media::content_type(headers) {
        ContentType::Json => Ok(()),
        ContentType::Absent | ContentType::Other => Err(flaw("content-type", "must be application/json")),
    }
}

/// Parses a JSON object with nothing after it. The check for `{` is necessary because serde also
/// reads a struct from an array.
fn object<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Fault> {
    let first = body.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    // serde skips unknown members without checking their UTF-8, so the whole body is checked here.
    let text = std::str::from_utf8(body).ok().filter(|_| first == Some(&b'{'));
    // The parser's error message may quote the body, so it is dropped.
    let parsed = text.and_then(|text| serde_json::from_str(text).ok());
    parsed.ok_or_else(|| flaw("body", "must be a JSON object of the expected form"))
}

fn flaw(path: &'static str, reason: &'static str) -> Fault {
    Fault::InvalidVaultRequest(FieldError::at(path, reason))
}

/// A list of texts. A list that is too long is cut to one more than the maximum, to bound its
/// memory.
struct List(Vec<String>);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Texts)
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = List;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<List, A::Error> {
        let mut texts = Vec::new();
        while texts.len() <= LIST_MAX {
            match elements.next_element()? {
                Some(text) => texts.push(text),
                None => return Ok(List(texts)),
            }
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(List(texts))
    }
}

#[cfg(test)]
mod tests;
