//! How many fetches of a request are left. Kept as decimal digits in the scratch
//! of the request.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::ToolError;

/// What is to be kept after one more fetch.
///
/// # Errors
///
/// There is none left; the model is told so.
pub(crate) fn spend(kept: Option<&[u8]>, uses_max: u32) -> Result<Vec<u8>, ToolError> {
    let read = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
    // Nobody else writes there: what cannot be read counts as all used up.
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
