//! Cases of tools and hooks as a file has them, and what cases of all kinds have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use toml::Spanned;

use super::imports::{Scripts, WrittenHttp, WrittenModel, WrittenTool};
use super::{CaseInput, CaseMistake, CheckedCase, WrittenCase};

/// The time of a case that names none.
const NOW_MS: u64 = 1_700_000_000_000;

/// What cases of all kinds have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) name: String,
    pub(super) now: Option<Spanned<String>>,
    pub(super) seed: u64,
    pub(super) config: Map<String, Value>,
    pub(super) expect: BTreeMap<Spanned<String>, Value>,
}

/// A call of a tool.
#[derive(Debug)]
pub(in super::super) struct ToolInput {
    /// Without a call, only the functions are asked for.
    pub(in super::super) call: Option<FunctionCall>,
    pub(in super::super) settings: Value,
    pub(in super::super) scripts: Arc<Scripts>,
}

/// The function that a model calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct FunctionCall {
    pub(in super::super) function: String,
    #[serde(default = "nothing", deserialize_with = "arguments")]
    pub(in super::super) arguments: Value,
}

/// A call of a hook.
#[derive(Debug)]
pub(in super::super) struct HookInput {
    pub(in super::super) request: Value,
    /// For a hook of the phase on-response.
    pub(in super::super) response: Option<Value>,
    pub(in super::super) settings: Value,
    pub(in super::super) scripts: Arc<Scripts>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolCase {
    name: String,
    now: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "seed")]
    seed: u64,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    expect: BTreeMap<Spanned<String>, Value>,
    call: Option<FunctionCall>,
    /// The `parameters` of the request's entry for the tool.
    #[serde(default = "nothing")]
    settings: Value,
    #[serde(default)]
    http: Vec<Spanned<WrittenHttp>>,
    #[serde(default)]
    model: Vec<Spanned<WrittenModel>>,
    #[serde(default)]
    secrets: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    catalog: Option<Vec<Value>>,
    transcript: Option<Vec<Value>>,
    deferred: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HookCase {
    name: String,
    now: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "seed")]
    seed: u64,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default)]
    expect: BTreeMap<Spanned<String>, Value>,
    request: Map<String, Value>,
    response: Option<Map<String, Value>>,
    /// The request's entry for the hook.
    #[serde(default = "nothing")]
    settings: Value,
    #[serde(default)]
    http: Vec<Spanned<WrittenHttp>>,
    #[serde(default)]
    model: Vec<Spanned<WrittenModel>>,
    #[serde(default)]
    secrets: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    tools: Vec<Spanned<WrittenTool>>,
}

impl WrittenCase for ToolCase {
    const ANSWERS: &[&str] = &[
        "item",
        "for_model",
        "annotations",
        "cost_pico",
        "functions",
        "loaded",
        "invalid_arguments",
        "invalid_settings",
        "failed",
    ];

    fn checked(self, _folder: &Path) -> Result<CheckedCase, CaseMistake> {
        let Self { name, now, seed, config, expect, call, settings, http, model, secrets, .. } = self;
        let mut scripts = Scripts::checked(http, model, Vec::new(), secrets)?;
        scripts.catalog = self.catalog;
        scripts.transcript = self.transcript;
        scripts.deferred = self.deferred;
        let input = CaseInput::Tool(ToolInput { call, settings, scripts: Arc::new(scripts) });
        Ok(CheckedCase { common: Common { name, now, seed, config, expect }, input })
    }
}

impl WrittenCase for HookCase {
    const ANSWERS: &[&str] = &["action", "replace", "reject", "failure"];

    fn checked(self, _folder: &Path) -> Result<CheckedCase, CaseMistake> {
        let Self { name, now, seed, config, expect, request, response, settings, http, model, .. } = self;
        let scripts = Scripts::checked(http, model, self.tools, self.secrets)?;
        let (request, response) = (Value::Object(request), response.map(Value::Object));
        let input = CaseInput::Hook(HookInput { request, response, settings, scripts: Arc::new(scripts) });
        Ok(CheckedCase { common: Common { name, now, seed, config, expect }, input })
    }
}

/// Reads a seed: a number, or its digits as a text, because TOML has no numbers above 2^63 - 1.
pub(super) fn seed<'de, D: Deserializer<'de>>(written: D) -> Result<u64, D::Error> {
    struct Seed;

    impl Visitor<'_> for Seed {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number from 0 to 2^64 - 1, above 2^63 - 1 as a text")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    written.deserialize_any(Seed)
}

/// The Unix time of `now`, in milliseconds.
pub(super) fn milliseconds(now: Option<&Spanned<String>>) -> Result<u64, CaseMistake> {
    let Some(now) = now else { return Ok(NOW_MS) };
    let parsed = now.get_ref().parse::<jiff::Timestamp>().ok();
    let ms = parsed.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    ms.ok_or_else(|| CaseMistake::at(now, "`now` takes a time such as \"2026-01-31T12:00:00Z\""))
}

/// Reads the arguments of a call: no host passes on anything but an object.
fn arguments<'de, D: Deserializer<'de>>(written: D) -> Result<Value, D::Error> {
    let arguments = Value::deserialize(written)?;
    if arguments.is_object() { Ok(arguments) } else { Err(D::Error::custom("`arguments` takes a table")) }
}

fn nothing() -> Value {
    json!({})
}
