//! The messages of an OTLP trace export
//! (`opentelemetry/proto/collector/trace/v1/trace_service.proto`), with the fields that this host
//! fills. One set of types serves both encodings: `prost` writes protobuf, and `serde` writes the
//! JSON encoding of OTLP/HTTP, with ids in hexadecimal and 64-bit numbers as text.

use cofferdam_store::hex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

/// The answer to it.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExportAnswer {
    /// Absent where everything was taken.
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    #[serde(deserialize_with = "number_or_text")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
    /// The revision of the semantic conventions that the names of attributes are from.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) span_id: Vec<u8>,
    /// 8 bytes, or empty for a root span.
    #[prost(bytes = "vec", tag = "4")]
    #[serde(serialize_with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(serialize_with = "text")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(serialize_with = "text")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum SpanKind {
    Unspecified = 0,
    /// Work inside this host.
    Internal = 1,
    /// The request of a client.
    Server = 2,
    /// A call to a remote service, here to a model's provider.
    Client = 3,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Status {
    #[prost(enumeration = "StatusCode", tag = "3")]
    #[serde(skip_serializing_if = "is_unset")]
    pub(super) code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum StatusCode {
    Unset = 0,
    Error = 2,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct AnyValue {
    #[prost(oneof = "Scalar", tags = "1, 2, 3, 4")]
    #[serde(flatten)]
    pub(super) value: Option<Scalar>,
}

/// The scalar values of an attribute. Lists and maps are left out: not every collector takes them
/// nested.
#[derive(Clone, PartialEq, prost::Oneof, Serialize)]
#[expect(clippy::enum_variant_names, reason = "the names of the JSON encoding")]
#[serde(rename_all = "camelCase")]
pub(super) enum Scalar {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(bool, tag = "2")]
    BoolValue(bool),
    #[prost(int64, tag = "3")]
    IntValue(#[serde(serialize_with = "text")] i64),
    #[prost(double, tag = "4")]
    DoubleValue(f64),
}

fn hexadecimal<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

/// A 64-bit number as decimal text, because JSON numbers are exact up to 53 bits only.
fn text<T: ToString, S: Serializer>(number: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&number.to_string())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn is_unset(code: &i32) -> bool {
    *code == StatusCode::Unset as i32
}

/// Reads a number of 64 bits, which is text in JSON; some receivers write a number.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(i64),
        Text(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Number(number) => number,
        Written::Text(text) => text.parse().unwrap_or(0),
    })
}
