//! The models of a preset: chosen by the operator, otherwise by price.

use serde_json::Value;

/// All presets, best first.
pub(crate) const ALL: [&str; 3] = ["general-high", "general-budget", "general-fast"];
/// The preset of a request that names neither models nor a preset.
pub(crate) const DEFAULT: &str = "general-high";

/// How many models a panel has that is chosen by price.
const CHOSEN: usize = 3;

/// The models of a preset, at most `most`. The operator defines them in `presets` of `config`.
/// Otherwise `general-high` has the three most expensive models, and the other two presets have the
/// three cheapest: the catalog does not say how fast a model is.
pub(crate) fn models(preset: &str, config: &[u8], catalog: &[u8], most: usize) -> Vec<String> {
    let config: Value = serde_json::from_slice(config).unwrap_or_default();
    let said = config.get("presets").and_then(|presets| presets.get(preset)).and_then(Value::as_array);
    if let Some(models) = said {
        return models.iter().filter_map(Value::as_str).take(most).map(str::to_owned).collect();
    }
    let mut ranked = ranked(catalog);
    if preset == DEFAULT {
        ranked.reverse();
    }
    ranked.truncate(CHOSEN);
    ranked
}

/// The models for responses, cheapest first.
fn ranked(catalog: &[u8]) -> Vec<String> {
    let models: Vec<Value> = serde_json::from_slice(catalog).unwrap_or_default();
    let mut priced: Vec<(f64, String)> = models.iter().filter_map(priced).collect();
    priced.sort_by(|(one, a), (other, b)| one.total_cmp(other).then_with(|| a.cmp(b)));
    priced.into_iter().map(|(_, id)| id).collect()
}

/// A model with the price of its cheapest endpoint, input and output added.
fn priced(model: &Value) -> Option<(f64, String)> {
    if model.get("kind")? != "responses" {
        return None;
    }
    let price = |endpoint: &Value| {
        let of = |name: &str| endpoint.get("pricing")?.get(name)?.as_f64();
        of("input").unwrap_or_default() + of("output").unwrap_or_default()
    };
    let prices = model.get("endpoints")?.as_array()?.iter().map(price);
    Some((prices.min_by(f64::total_cmp)?, model.get("id")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalog() -> Vec<u8> {
        let model = |id: &str, kind: &str, price: f64| {
            json!({"id": id, "kind": kind, "endpoints": [
                {"pricing": {"input": price, "output": price}}, {"pricing": {"input": 99.0, "output": 99.0}}]})
        };
        json!([
            model("a/1", "responses", 1.0),
            model("a/4", "responses", 4.0),
            model("a/2", "responses", 2.0),
            model("a/9", "embeddings", 9.0),
            model("a/3", "responses", 3.0),
            7,
            {"id": "broken", "kind": "responses"},
        ])
        .to_string()
        .into_bytes()
    }

    #[test]
    fn presets_go_by_price_by_default() {
        let of = |preset| models(preset, b"{}", &catalog(), 8);
        assert_eq!(of("general-high"), ["a/4", "a/3", "a/2"]);
        assert_eq!(of("general-budget"), ["a/1", "a/2", "a/3"]);
        assert_eq!(of("general-fast"), ["a/1", "a/2", "a/3"]);
        assert!(models("general-high", b"", b"", 8).is_empty());
    }

    #[test]
    fn the_operator_defines_presets() {
        let config = json!({"presets": {"general-fast": ["x/1", "x/2", 7]}}).to_string();
        assert_eq!(models("general-fast", config.as_bytes(), &catalog(), 8), ["x/1", "x/2"]);
        assert_eq!(models("general-fast", config.as_bytes(), &catalog(), 1), ["x/1"]);
        assert_eq!(models("general-high", config.as_bytes(), &catalog(), 8)[0], "a/4");
    }
}
