//! Service tiers. The endpoint decides which tier is requested, because the client is charged the
//! endpoint's prices: a client that asks for priority and reaches a default endpoint must not
//! get priority there.

/// The `service_tier` to send, if any. `endpoint` is the tier of the endpoint, `requested` the
/// tier that the client asked for.
#[must_use]
pub fn requested_tier(endpoint: &str, requested: Option<&str>) -> Option<&'static str> {
    match (endpoint, requested) {
        ("flex", _) => Some("flex"),
        ("scale", _) => Some("scale"),
        // OpenAI has no tier above priority.
        ("priority" | "ultrafast", _) => Some("priority"),
        // Not sent unless the client used the field: some servers reject unknown fields.
        (_, None) => None,
        (_, Some("auto")) => Some("auto"),
        (_, Some(_)) => Some("default"),
    }
}

/// The tier that served the request, if the answer names one.
#[must_use]
pub fn served_tier(reported: &str) -> Option<String> {
    let is_name =
        (1..=32).contains(&reported.len()) && reported.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    (is_name && reported != "auto").then(|| reported.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{requested_tier, served_tier};

    #[test]
    fn the_endpoint_decides() {
        assert_eq!(requested_tier("flex", Some("fast")), Some("flex"));
        assert_eq!(requested_tier("priority", Some("fast")), Some("priority"));
        assert_eq!(requested_tier("scale", Some("scale")), Some("scale"));
        assert_eq!(requested_tier("priority", None), Some("priority"));
        assert_eq!(requested_tier("default", Some("fast")), Some("default"));
        assert_eq!(requested_tier("default", Some("auto")), Some("auto"));
        assert_eq!(requested_tier("default", None), None);
    }

    #[test]
    fn a_reported_tier_is_a_name() {
        assert_eq!(served_tier("priority").as_deref(), Some("priority"));
        for nothing in ["", "auto", "Has Space", &"x".repeat(40)] {
            assert_eq!(served_tier(nothing), None);
        }
    }
}
