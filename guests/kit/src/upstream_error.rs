//! The status and the `retry-after` header of a provider's answer.

use crate::bindings::types::ErrorKind;

/// The kind of failure that a status means at every provider; `None` for the others.
#[must_use]
pub fn kind_of_status(status: u16) -> Option<ErrorKind> {
    Some(match status {
        401 => ErrorKind::Authentication,
        402 => ErrorKind::PaymentRequired,
        403 => ErrorKind::PermissionDenied,
        404 => ErrorKind::NotFound,
        408 | 504 | 524 => ErrorKind::Timeout,
        412 => ErrorKind::PreconditionFailed,
        413 => ErrorKind::PayloadTooLarge,
        422 => ErrorKind::Unprocessable,
        429 => ErrorKind::RateLimitExceeded,
        529 => ErrorKind::ProviderOverloaded,
        400..=499 => ErrorKind::InvalidRequest,
        _ => return None,
    })
}

/// The wait that a `retry-after` value asks for, in milliseconds, capped at one hour. Only the form
/// in seconds is read: the date form would need a clock.
#[must_use]
pub fn retry_after_ms(value: &str) -> Option<u64> {
    let seconds: f64 = value.trim().parse().ok()?;
    if !seconds.is_finite() || seconds < 0.0 {
        return None;
    }
    Some((seconds.min(3600.0) * 1000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::retry_after_ms;

    #[test]
    fn takes_seconds_and_refuses_the_rest() {
        let cases = [
            ("2", Some(2000)),
            (" 0.25 ", Some(250)),
            ("0", Some(0)),
            ("99999999999", Some(3_600_000)),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after_ms(value), expected, "{value}");
        }
    }
}
