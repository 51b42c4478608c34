//! `provider.options` of a request: fields of the provider that the API does not have.
//!
//! They are added to the body and override translated fields. The host has already removed every
//! field and beta that neither the manifest nor the operator allows. `betas` becomes the header
//! `anthropic-beta`.

use cofferdam_guest_kit::add_options;
use cofferdam_guest_kit::bindings::dialect::UpstreamRequest;
use serde_json::{Map, Value};

const VERSION: &str = "2023-06-01";

/// Builds the upstream request from the body, the options and the beta that the tier needs.
pub fn apply(body: Vec<u8>, options: &[u8], beta: Option<&str>, streamed: bool) -> UpstreamRequest {
    let mut betas: Vec<String> = beta.map(str::to_owned).into_iter().collect();
    let mut options: Map<String, Value> = serde_json::from_slice(options).unwrap_or_default();
    betas.extend(options.remove("betas").iter().flat_map(beta_names));
    let options = serde_json::to_vec(&options).unwrap_or_default();
    let body = add_options(body, &options);
    let mut headers = vec![("anthropic-version".to_owned(), VERSION.to_owned())];
    if !betas.is_empty() {
        headers.push(("anthropic-beta".to_owned(), betas.join(",")));
    }
    UpstreamRequest { path: "messages".to_owned(), headers, body, streamed }
}

fn beta_names(value: &Value) -> Vec<String> {
    let names = match value {
        Value::String(names) => names.split(',').map(str::trim).collect(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    names.into_iter().filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::apply;

    fn applied(options: &str) -> (String, Vec<(String, String)>) {
        let request = apply(br#"{"model":"m","top_k":1}"#.to_vec(), options.as_bytes(), Some("b0"), true);
        (String::from_utf8(request.body).expect("UTF-8"), request.headers)
    }

    #[test]
    fn options_are_added_and_betas_become_the_header() {
        let (body, headers) =
            applied(r#"{"betas":["b1","b 2","x\r\ny","b3"],"top_k":5,"inference_geo":"us"}"#);
        assert_eq!(body, r#"{"model":"m","top_k":5,"inference_geo":"us"}"#);
        let beta = headers.iter().find(|(name, _)| name == "anthropic-beta").map(|(_, value)| value.as_str());
        assert_eq!(beta, Some("b0,b1,b3"));
    }

    #[test]
    fn no_options_leave_the_body_alone() {
        for options in ["{}", "", "null", "[1]"] {
            assert_eq!(applied(options).0, r#"{"model":"m","top_k":1}"#, "{options}");
        }
    }
}
