//! Checks the path that a guest appends to an origin.
//!
//! The check is strict: a path either consists of plain segments or is refused. It is never
//! repaired. Servers disagree on what counts as a slash, a dot or a line break, so their encoded
//! forms are refused too.

#[cfg(test)]
mod tests;

/// Length limit of a path with its query, in bytes.
const PATH_BYTES_MAX: usize = 8 * 1024;

/// Why a path cannot be appended to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum PathError {
    /// The path is empty or a single slash.
    Empty,
    /// Longer than 8 KiB.
    TooLong,
    /// The path is a URL with a scheme, or could be read as one.
    Absolute,
    /// The path has `//`. At the start it names another host; elsewhere servers treat it
    /// differently.
    EmptySegment,
    /// The path has the segment `.` or `..`, plain or encoded.
    DotSegment,
    /// The path has a character that is not allowed, plain or encoded: a control character, a
    /// space, a backslash, `#`, `@` before the query, or any character outside ASCII.
    Character,
    /// A percent sign without two hexadecimal digits, or an encoded percent sign in the path.
    Encoding,
}

impl PathError {
    /// What is wrong with the path.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "the path is empty",
            Self::TooLong => "the path is too long",
            Self::Absolute => "the path must be relative to the base URL",
            Self::EmptySegment => "the path has an empty segment",
            Self::DotSegment => "the path has a dot segment",
            Self::Character => "the path has a character that is not allowed",
            Self::Encoding => "the path has a percent encoding that is not allowed",
        }
    }
}

/// Checks a path with an optional query and returns it without its leading slash.
///
/// # Errors
///
/// The first rule that the path breaks.
pub(crate) fn check(path: &str) -> Result<&str, PathError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    let relative = path.strip_prefix('/').unwrap_or(path);
    let (segments, query) = match relative.split_once('?') {
        Some((segments, query)) => (segments, Some(query)),
        None => (relative, None),
    };
    if segments.is_empty() {
        return Err(PathError::Empty);
    }
    check_characters(segments, is_path_character)?;
    if segments.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err(PathError::Absolute);
    }
    // Some servers name a collection with a slash at the end.
    let body = segments.strip_suffix('/').unwrap_or(segments);
    for segment in body.split('/') {
        check_segment(segment)?;
    }
    if let Some(query) = query {
        check_characters(query, is_query_character)?;
    }
    Ok(relative)
}

fn check_segment(segment: &str) -> Result<(), PathError> {
    if segment.is_empty() {
        return Err(PathError::EmptySegment);
    }
    if !segment.contains('%') {
        return if matches!(segment, "." | "..") { Err(PathError::DotSegment) } else { Ok(()) };
    }
    // An encoded slash does not split the segment here, but the server may decode before it splits.
    let mut decoded = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let (digits, tail) = after.split_at_checked(2).ok_or(PathError::Encoding)?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| PathError::Encoding)?;
        if byte == b'%' {
            return Err(PathError::Encoding);
        }
        decoded.push(char::from(byte));
        rest = tail;
    }
    decoded.push_str(rest);
    match decoded.split('/').find(|part| matches!(*part, "." | "..")) {
        Some(_) => Err(PathError::DotSegment),
        None => Ok(()),
    }
}

/// Every byte is allowed as it is, or is percent-encoded and neither a control character nor a
/// backslash.
fn check_characters(text: &str, is_allowed: fn(u8) -> bool) -> Result<(), PathError> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            if !is_allowed(byte) {
                return Err(PathError::Character);
            }
            continue;
        }
        let (Some(high), Some(low)) = (hex(bytes.next()), hex(bytes.next())) else {
            return Err(PathError::Encoding);
        };
        let encoded = high * 16 + low;
        if encoded.is_ascii_control() || encoded == b'\\' {
            return Err(PathError::Character);
        }
    }
    Ok(())
}

fn hex(digit: Option<u8>) -> Option<u8> {
    let value = char::from(digit?).to_digit(16)?;
    u8::try_from(value).ok()
}

/// RFC 3986 `pchar` without `@`: a parser that is wrong about where the path starts would read it
/// as user information.
fn is_path_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:/".contains(&byte)
}

/// RFC 3986 `query`, plus brackets and the vertical bar, which are common in practice.
fn is_query_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?[]|".contains(&byte)
}
