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

/// The wait that the `retry-after` header of an answer asks for, in milliseconds, at most one hour. A
/// date is compared with the answer's own `date` header, so no clock is needed (RFC 9110, 10.2.3).
#[must_use]
pub fn retry_after_ms(headers: &[(String, String)]) -> Option<u64> {
    let value = |name| {
        headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let wait = value("retry-after")?;
    if let Ok(seconds) = wait.parse() {
        return wait_ms(seconds);
    }
    let (until, now) =
        (httpdate::parse_http_date(wait).ok()?, httpdate::parse_http_date(value("date")?).ok()?);
    wait_ms(until.duration_since(now).unwrap_or_default().as_secs_f64())
}

/// A wait in whole milliseconds, at most one hour. `None` for a number that is no wait.
#[must_use]
pub fn wait_ms(seconds: f64) -> Option<u64> {
    let is_wait = seconds.is_finite() && seconds >= 0.0;
    is_wait.then(|| (seconds.min(3600.0) * 1000.0).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::retry_after_ms;

    fn wait(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        retry_after_ms(&headers)
    }

    #[test]
    fn takes_seconds_and_refuses_what_is_no_wait() {
        let cases = [
            ("2", Some(2000)),
            (" 0.25 ", Some(250)),
            ("0", Some(0)),
            ("99999999999", Some(3_600_000)),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("tomorrow", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(wait(&[("retry-after", value)]), expected, "{value}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn a_date_is_compared_with_the_date_of_the_answer() {
        let until = ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT");
        let cases = [
            ("Wed, 21 Oct 2026 07:27:30 GMT", Some(30_000)),
            ("Wednesday, 21-Oct-26 07:27:59 GMT", Some(1_000)),
            ("Tue, 20 Oct 2026 07:28:00 GMT", Some(3_600_000)),
            ("Wed, 21 Oct 2026 07:29:00 GMT", Some(0)),
            ("now", None),
        ];
        for (date, expected) in cases {
            assert_eq!(wait(&[("date", date), until]), expected, "{date}");
        }
        assert_eq!(wait(&[until]), None, "the answer has no date");
    }
}
