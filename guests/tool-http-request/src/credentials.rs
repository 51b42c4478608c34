//! The places of secrets in a request. The guest only names secrets. The host decides whether the
//! secret exists, is granted and is bound to the host of the request, and gives the same error for
//! all three cases.

use cofferdam_guest_kit::bindings::http::{Injection, Placement};
use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;

use crate::header_name::is_name;

/// The start of a placeholder; `}}` ends it.
const OPENING: &str = "{{secret:";
/// The largest number of placeholders in one request (egress rule R2).
const PLACEHOLDERS_MAX: usize = 4;
/// The longest text before a secret, in bytes.
const PREFIX_BYTES_MAX: usize = 100;
/// The longest name of a secret, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The placeholders in the value of the header `name`, as injections.
///
/// # Errors
///
/// When a placeholder has no end, or its name cannot be the name of a secret.
pub(crate) fn placeholders(name: &str, value: &str) -> Result<Vec<Injection>, String> {
    let mut found: Vec<Injection> = Vec::new();
    for (start, _) in value.match_indices(OPENING) {
        let rest = value.get(start + OPENING.len()..).unwrap_or_default();
        let secret = rest.split_once("}}").map_or("", |(secret, _)| secret);
        if !is_secret_name(secret) {
            return Err(format!("headers.{name} must hold placeholders of the form {{{{secret:NAME}}}}"));
        }
        if found.iter().any(|injection| injection.secret == secret) {
            continue;
        }
        let placeholder = format!("{OPENING}{secret}}}}}");
        found.push(Injection {
            secret: secret.to_owned(),
            placement: Placement::HeaderPlaceholder((name.to_owned(), placeholder)),
        });
    }
    Ok(found)
}

/// Whether a text other than a header value contains a placeholder. It would be sent unchanged, or
/// the host would refuse the request (egress rule R2).
pub(crate) fn holds_placeholder(text: &str) -> bool {
    text.contains(OPENING)
}

/// Reads the argument `secret`: one secret in a header.
///
/// # Errors
///
/// When one of its fields is wrong.
pub(crate) fn secret(arguments: &Fields) -> Result<Option<Injection>, ToolError> {
    let Some(fields) = arguments.object("secret")? else { return Ok(None) };
    let text = |name: &str| match fields.get(name) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(arguments.wrong(&format!("secret.{name}"), "must be a string")),
    };
    let name = text("name")?.map_or("", str::trim);
    if !is_secret_name(name) {
        let takes = "must be the name of a secret: lower-case letters, digits and underscores";
        return Err(arguments.wrong("secret.name", takes));
    }
    let header =
        text("header")?.map_or_else(|| "authorization".to_owned(), |text| text.trim().to_ascii_lowercase());
    if !is_name(&header) {
        return Err(arguments.wrong("secret.header", "must be the name of a header that may be set"));
    }
    let usual = if header == "authorization" { "Bearer " } else { "" };
    let prefix = text("prefix")?.unwrap_or(usual);
    let plain = prefix.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !plain || prefix.len() > PREFIX_BYTES_MAX || holds_placeholder(prefix) {
        return Err(arguments.wrong("secret.prefix", "must be at most 100 plain ASCII characters"));
    }
    let placement = Placement::Header((header, prefix.to_owned(), String::new()));
    Ok(Some(Injection { secret: name.to_owned(), placement }))
}

/// Checks all injections of one request together.
///
/// # Errors
///
/// When there are too many placeholders.
pub(crate) fn check(injections: &[Injection]) -> Result<(), ToolError> {
    let placed = |injection: &&Injection| matches!(injection.placement, Placement::HeaderPlaceholder(_));
    if injections.iter().filter(placed).count() > PLACEHOLDERS_MAX {
        let message = format!("headers hold more than {PLACEHOLDERS_MAX} secrets");
        return Err(ToolError::InvalidArguments(message));
    }
    Ok(())
}

fn is_secret_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
