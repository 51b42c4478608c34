//! Service tiers. The endpoint decides what is asked for, because its prices
//! are those the client is charged: a wish for priority that reached a default
//! endpoint must not buy priority there.

/// What to send as `service_tier`, if anything. `endpoint` is the tier that the
/// endpoint stands for, `requested` the client's wish.
#[must_use]
pub fn requested_tier(endpoint: &str, requested: Option<&str>) -> Option<&'static str> {
    match (endpoint, requested) {
        ("flex", _) => Some("flex"),
        // OpenAI has no tier above priority.
        ("priority" | "ultrafast", _) => Some("priority"),
        // Servers that do not know the field are spared it.
        (_, None) => None,
        (_, Some("auto")) => Some("auto"),
        (_, Some(_)) => Some("default"),
    }
}

/// The tier that served, if the answer names one.
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
