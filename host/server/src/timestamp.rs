//! Formats times for the API and the command line.

/// Unix milliseconds as ISO 8601 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`.
pub(crate) fn timestamp(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn milliseconds_are_always_written() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_767_323_045_670), "2026-01-02T03:04:05.670Z");
    }
}
