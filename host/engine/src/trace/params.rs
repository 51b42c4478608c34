//! `params` of the routing metadata: the lower limits that the client set for routing, under their
//! names in the metadata.

use serde_json::{Map, Value};

/// The object; `None` where the client set no lower limit.
///
/// `preferences` is the `provider` object, `router` the plugin entry of the model router, if the
/// request names one.
pub(crate) fn params(preferences: &[u8], router: Option<&[u8]>) -> Option<Value> {
    let mut params = Map::new();
    if let Some(quality) = router.and_then(|entry| floor(entry, "min_coding_score")) {
        params.insert("quality_floor".to_owned(), quality);
    }
    if let Some(throughput) = floor(preferences, "preferred_min_throughput") {
        params.insert("throughput_floor".to_owned(), throughput);
    }
    (!params.is_empty()).then_some(Value::Object(params))
}

/// The number given, or the one for the median where there is one for each percentile.
fn floor(object: &[u8], name: &str) -> Option<Value> {
    let object: Value = serde_json::from_slice(object).ok()?;
    let given = object.get(name)?;
    [given, given.get("p50").unwrap_or(&Value::Null)].into_iter().find(|value| value.is_number()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lower_limits_have_the_names_of_the_metadata() {
        let entry = br#"{"id":"pareto-router","min_coding_score":0.5}"#;
        assert_eq!(
            params(br#"{"preferred_min_throughput":{"p50":40,"p90":9}}"#, Some(entry)),
            Some(json!({"quality_floor": 0.5, "throughput_floor": 40}))
        );
        let throughput = params(br#"{"preferred_min_throughput":40.5}"#, Some(b"{}"));
        assert_eq!(throughput, Some(json!({"throughput_floor": 40.5})));
        assert_eq!(params(br#"{"preferred_min_throughput":{"p90":9},"sort":"price"}"#, None), None);
        assert_eq!(params(b"{}", None), None);
    }
}
