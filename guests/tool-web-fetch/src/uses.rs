//! Counts the fetches of a request. The count is stored as decimal digits in the scratch of the
//! request.

use cofferdam_guest_kit::bindings::tools::ToolError;

/// The count to store after one more fetch.
///
/// # Errors
///
/// When the limit is reached; the message is for the model.
pub(crate) fn spend(kept: Option<&[u8]>, uses_max: u32) -> Result<Vec<u8>, ToolError> {
    let read = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
    // Only this tool writes the value. A value that cannot be read counts as the limit.
    let used = kept.map_or(0, |digits| read(digits).unwrap_or(u32::MAX));
    if used >= uses_max {
        let message =
            format!("All {uses_max} fetches of this request are used up. Answer from what you have.");
        return Err(ToolError::Failed(message));
    }
    Ok((used + 1).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_counted_to_the_limit() {
        let one = spend(None, 2).unwrap();
        let two = spend(Some(&one), 2).unwrap();
        assert_eq!((one.as_slice(), two.as_slice()), (&b"1"[..], &b"2"[..]));
        assert!(matches!(spend(Some(&two), 2), Err(ToolError::Failed(message)) if message.contains("All 2")));
        assert!(spend(Some(b"nonsense"), 50).is_err());
    }
}
