//! The names of headers that a model may set.

/// Headers that only the HTTP library or the host may set (egress rules R8, R15, R17).
const RESERVED: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "forwarded",
];

/// Whether a name is a lower-case token and not reserved.
pub(crate) fn is_name(name: &str) -> bool {
    let token =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=100).contains(&name.len())
        && name.bytes().all(token)
        && !RESERVED.contains(&name)
        && !name.starts_with("proxy-")
        && !name.starts_with("x-forwarded-")
}
