//! Which headers may carry a credential or a secret, and which say who is asking.

use http::{HeaderName, header};

/// Length limit of a header value, in bytes; many servers accept less (egress rule R17).
pub(crate) const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Returns whether a manifest may put a credential into this header. Refused are headers that steer
/// the request, describe its sender or content, or are usually written to logs by servers
/// (egress rule R15).
pub(crate) fn may_carry_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    let elsewhere = matches!(
        name,
        "user-agent"
            | "referer"
            | "origin"
            | "from"
            | "range"
            | "idempotency-key"
            | "prefer"
            | "last-event-id"
            | "content-type"
            | "content-encoding"
            | "content-disposition"
            | "traceparent"
            | "tracestate"
            | "baggage"
            | "request-id"
            | "x-amzn-trace-id"
            | "x-cloud-trace-context"
            | "b3"
    );
    let family = ["accept", "if-", "sec-", "access-control-", "x-request-", "x-correlation-", "x-b3-"];
    !elsewhere && !is_connection(name) && !family.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether an operator's injection plan may put a secret into this header. Unlike a
/// manifest, a plan may name the `Cookie` header (egress rule R15).
pub(crate) fn may_carry_secret(name: &HeaderName) -> bool {
    name == header::COOKIE || may_carry_credential(name)
}

/// Length limit of the text on each side of a secret, in bytes. With unlimited padding, a guest
/// could find out the length of a secret from the error for a header value that is too long.
const FRAME_BYTES_MAX: usize = 256;

/// Returns whether these texts may stand before and after a secret in a header.
pub(crate) fn is_frame(before: &str, after: &str) -> bool {
    let is_plain =
        |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'{' | b'}'));
    let is_short = before.len() <= FRAME_BYTES_MAX && after.len() <= FRAME_BYTES_MAX;
    is_short && is_plain(before) && is_plain(after) && !before.starts_with(' ') && !after.ends_with(' ')
}

/// Returns whether a secret can be sent in a header unchanged (egress rule R14). Other secrets are
/// refused, never trimmed.
pub(crate) fn is_safe(exposed: &[u8]) -> bool {
    exposed.iter().all(|byte| matches!(byte, b' '..=b'~'))
        && exposed.first() != Some(&b' ')
        && exposed.last() != Some(&b' ')
}

/// Returns whether a header identifies the caller. Next to a secret that the host adds, it would
/// leave unclear under which identity the request runs (egress rule R16). `Cookie` is in the list
/// although no guest may send it.
#[must_use]
pub fn is_credential_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = [
        "authorization",
        "api-key",
        "apikey",
        "api_key",
        "-token",
        "-secret",
        "access-key",
        "auth-key",
        "-signature",
    ];
    name == "token" || name.starts_with("cookie") || ends.iter().any(|end| name.ends_with(end))
}

/// Headers of the connection, of framing, of intermediaries and of sessions.
pub(crate) fn is_connection(name: &str) -> bool {
    matches!(
        name,
        "host"
            | "content-length"
            | "transfer-encoding"
            | "connection"
            | "keep-alive"
            | "upgrade"
            | "te"
            | "trailer"
            | "expect"
            | "http2-settings"
            | "max-forwards"
            | "via"
            | "forwarded"
            | "x-real-ip"
            | "cookie"
            | "cookie2"
            | "set-cookie"
    ) || name.starts_with("proxy-")
        || name.starts_with("x-forwarded-")
}
