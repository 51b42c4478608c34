//! `debug.echo_upstream_body`: what was sent to each provider that was tried, and when, kept until
//! the stream begins.
//!
//! Nothing is shown before the answer starts, so a failed attempt stays invisible until then. The
//! body is the guest's, to which the host adds no secret. If the client's own text repeats the
//! credential that was sent, asterisks replace it.

use crate::authentication::UsedCredential;
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most bytes of upstream bodies that are echoed for one response.
const BYTES_MAX: usize = 8 << 20;

/// The upstream bodies of one response.
#[derive(Debug)]
pub(crate) struct Echo {
    began: Instant,
    /// The moment `began` in Unix milliseconds.
    began_ms: u64,
    kept: Mutex<EchoedBody>,
}

#[derive(Debug, Default)]
struct EchoedBody {
    /// Values of the member `debug`, as JSON without line breaks.
    bodies: Vec<Vec<u8>>,
    /// The lengths of all bodies so far, with those already taken.
    bytes: usize,
}

impl Echo {
    /// For a response whose request arrived now. `now_ms` is the same moment in Unix milliseconds.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { began: Instant::now(), began_ms: now_ms, kept: Mutex::default() }
    }

    /// Keeps a body that is about to be sent.
    pub(crate) fn note(&self, body: &[u8], used: Option<&UsedCredential>) {
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_add(body.len());
        let shown = if kept.bytes > BYTES_MAX {
            json!({ "omitted": "the upstream bodies of this response are too long to be echoed", "bytes": body.len() })
        } else {
            shown(body, used)
        };
        let start_ms = self.began.elapsed().as_millis() as u64;
        let timings = json!({
            "event": "adapter_request",
            "start_ms": start_ms,
            "epoch_ms": self.began_ms.saturating_add(start_ms),
        });
        let debug = json!({ "echo_upstream_body": shown, "timings": timings });
        kept.bodies.push(debug.to_string().into_bytes());
    }

    /// The `debug` objects noted since the last call, in the order of the attempts. Each has the
    /// body and `timings`: `start_ms` counts from the arrival of the request, `epoch_ms` from 1970.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.kept().bodies)
    }

    fn kept(&self) -> MutexGuard<'_, EchoedBody> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body as JSON, with the credential covered in its strings. Strings are searched after
/// decoding, so that an escaped spelling is found too.
fn shown(body: &[u8], used: Option<&UsedCredential>) -> Value {
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    let shown = serde_json::from_slice(body).unwrap_or_else(|_| text());
    match used {
        Some(used) => covered(shown, &|text| used.credential.covered(text)),
        None => shown,
    }
}

fn covered(value: Value, cover: &impl Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(cover(text)),
        Value::Array(items) => items.into_iter().map(|item| covered(item, cover)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (cover(name), covered(value, cover))).collect()
        }
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_egress::{Credential, Placement};

    fn used() -> UsedCredential {
        let placement = Placement::header("x-api-key", "{}").unwrap();
        let credential = Credential::new(&placement, b"sk-very-secret").unwrap();
        UsedCredential { credential, is_byok: false }
    }

    /// The bodies alone.
    fn taken(echo: &Echo) -> Vec<Value> {
        let debug = echo.take();
        assert!(debug.iter().all(|debug| !debug.contains(&b'\n')), "each is one line");
        debug.iter().map(|debug| bare(debug)).collect()
    }

    fn bare(debug: &[u8]) -> Value {
        let mut debug: Value = serde_json::from_slice(debug).unwrap();
        assert_eq!(debug["timings"]["event"], "adapter_request");
        let since = |name: &str| debug["timings"][name].as_u64().unwrap();
        assert_eq!(since("epoch_ms"), since("start_ms") + 5_000);
        debug["echo_upstream_body"].take()
    }

    #[test]
    fn a_credential_is_covered_however_it_is_spelled() {
        let echo = Echo::new(5_000);
        let body = br#"{"a":["sk-very-secret","\u0073k-very-\u0073ecret"],"sk-very-secret":{"b":"x sk-very-secret y"},"n":1.50}"#;
        echo.note(body, Some(&used()));
        let stars = "*".repeat(14);
        let expected = json!({"a": [stars, stars], stars.clone(): {"b": format!("x {stars} y")}, "n": 1.5});
        assert_eq!(taken(&echo), [expected]);
        assert!(taken(&echo).is_empty());
    }

    #[test]
    fn a_body_is_written_on_one_line_and_is_bounded() {
        let echo = Echo::new(5_000);
        echo.note(b"{\n \"a\": 1\n}", None);
        echo.note(b"no\njson", None);
        let long = json!({"a": "x".repeat(BYTES_MAX)}).to_string();
        echo.note(long.as_bytes(), None);
        let bodies = taken(&echo);
        assert_eq!(bodies[..2], [json!({"a": 1}), json!("no\njson")]);
        assert_eq!(bodies[2]["bytes"], long.len());
    }
}
