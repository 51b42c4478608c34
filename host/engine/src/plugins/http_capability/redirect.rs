//! Where a redirect leads and which parts of the request are sent there (egress rule R10; Fetch
//! standard, section 4.5, "HTTP-redirect fetch"). Headers that were meant for one origin are not
//! sent to another.

use cofferdam_egress::{GuestRequest, TargetError};

/// Headers that describe the wanted answer and reveal nothing about the caller or a body.
const NEUTRAL: [&str; 3] = ["accept", "accept-language", "user-agent"];

/// The request that a redirect asks for in place of `request`; `None` for an answer that is not a
/// redirect.
///
/// # Errors
/// What is wrong with its `Location`.
pub fn redirected(
    request: &GuestRequest,
    status: u16,
    headers: &[(String, String)],
) -> Result<Option<GuestRequest>, TargetError> {
    let location = headers.iter().find(|(name, _)| name == "location");
    let (301 | 302 | 303 | 307 | 308, Some((_, location))) = (status, location) else { return Ok(None) };
    let target = request.target.redirect(location)?;
    let mut next = GuestRequest { target, ..request.clone() };
    let is_read = matches!(next.method.as_str(), "GET" | "HEAD");
    let becomes_get = match status {
        301 | 302 => next.method == "POST",
        303 => !is_read,
        _ => false,
    };
    if becomes_get {
        "GET".clone_into(&mut next.method);
        next.body.clear();
        next.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
    }
    if !next.target.is_same_origin(&request.target) {
        next.headers.retain(|(name, _)| NEUTRAL.contains(&name.to_ascii_lowercase().as_str()));
    }
    Ok(Some(next))
}
