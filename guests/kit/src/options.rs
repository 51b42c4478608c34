//! `provider.options` of a request: the provider's own fields, which the interface has no words for.

use serde_json::{Map, Value};

/// Adds what a client sets for this provider to `body`, the object that goes upstream: it wins over what was
/// translated. The host has let through only fields that the manifest or the operator lists. Without such options
/// not a byte of the body changes.
#[must_use]
pub fn add_options(body: Vec<u8>, options: &[u8]) -> Vec<u8> {
    // The usual case, without a parser.
    if options == b"{}" {
        return body;
    }
    let options: Map<String, Value> = serde_json::from_slice(options).unwrap_or_default();
    if options.is_empty() {
        return body;
    }
    let whole = serde_json::from_slice(&body).ok().and_then(|mut whole: Map<String, Value>| {
        whole.extend(options);
        serde_json::to_vec(&whole).ok()
    });
    // What a guest wrote itself is an object.
    whole.unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::add_options;

    fn added(options: &str) -> String {
        let body = br#"{"model":"m","top_k":1, "n":1.50}"#.to_vec();
        String::from_utf8(add_options(body, options.as_bytes())).expect("UTF-8")
    }

    #[test]
    fn options_win_over_what_was_translated() {
        assert_eq!(added(r#"{"top_k":5,"min_p":0.1}"#), r#"{"model":"m","top_k":5,"n":1.5,"min_p":0.1}"#);
    }

    #[test]
    fn without_options_not_a_byte_changes() {
        for options in ["", "{}", "{ }", "null", "[1]"] {
            assert_eq!(added(options), r#"{"model":"m","top_k":1, "n":1.50}"#, "{options}");
        }
    }
}
