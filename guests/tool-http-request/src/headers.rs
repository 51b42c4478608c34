//! The headers that a model may set.

use cofferdam_guest_kit::bindings::http::Injection;
use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;

use crate::credentials::placeholders;
use crate::header_name::is_name;

/// The largest number of headers in one request, and the longest value in bytes.
const HEADERS_MAX: usize = 50;
const VALUE_BYTES_MAX: usize = 8 * 1024;

/// Header lines, and the secrets that their values name.
pub(crate) type Lines = (Vec<(String, String)>, Vec<Injection>);

/// Reads the argument `headers`.
///
/// # Errors
///
/// When a name or a value cannot be sent; the message names the header.
pub(crate) fn read(arguments: &Fields) -> Result<Lines, ToolError> {
    let (mut lines, mut injections): Lines = Default::default();
    let Some(fields) = arguments.object("headers")? else { return Ok((lines, injections)) };
    if fields.len() > HEADERS_MAX {
        return Err(arguments.wrong("headers", &format!("must be at most {HEADERS_MAX}")));
    }
    for (name, value) in fields {
        let lower = name.trim().to_ascii_lowercase();
        if !is_name(&lower) {
            let message = format!(
                "headers: {:?} cannot be set",
                cofferdam_guest_kit::server_tool::clip(name, 100).text
            );
            return Err(ToolError::InvalidArguments(message));
        }
        if lines.iter().any(|(other, _)| *other == lower) {
            return Err(ToolError::InvalidArguments(format!("headers: {lower} is there twice")));
        }
        let value = value.as_str().map(str::trim).filter(|value| is_value(value)).ok_or_else(|| {
            ToolError::InvalidArguments(format!("headers.{lower} must be a string without line breaks"))
        })?;
        injections.extend(placeholders(&lower, value).map_err(ToolError::InvalidArguments)?);
        lines.push((lower, value.to_owned()));
    }
    Ok((lines, injections))
}

fn is_value(value: &str) -> bool {
    value.len() <= VALUE_BYTES_MAX && !value.chars().any(|char| char.is_control() && char != '\t')
}
