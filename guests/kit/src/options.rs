//! `provider.options` of a request: fields of the provider that the API does not have.

use serde_json::{Map, Value};

/// Adds the provider options of the client to `body`, the JSON object that goes upstream. An
/// option overrides a translated field. The host has already removed every option that neither the
/// manifest nor the operator allows. Without options the bytes of the body do not change.
#[must_use]
pub fn add_options(body: Vec<u8>, options: &[u8]) -> Vec<u8> {
    // The usual case needs no parser.
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
    // The guest wrote the body itself, so it is an object and the fallback is not reached.
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
    fn options_override_translated_fields() {
        assert_eq!(added(r#"{"top_k":5,"min_p":0.1}"#), r#"{"model":"m","top_k":5,"n":1.5,"min_p":0.1}"#);
    }

    #[test]
    fn without_options_the_body_is_unchanged() {
        for options in ["", "{}", "{ }", "null", "[1]"] {
            assert_eq!(added(options), r#"{"model":"m","top_k":1, "n":1.50}"#, "{options}");
        }
    }
}
