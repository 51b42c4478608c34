//! Advice about a configuration that is valid: in the log, or in an error for a client that asks
//! for a missing model.

use std::collections::BTreeMap;

use cofferdam_egress::Origin;
use cofferdam_engine::catalog::ModelKind;

use crate::config::{self, Config, ModelConfig, Problem, ProviderConfig};

/// The adapter of the built-in models.
const DEMO_ADAPTER: &str = "demo";

/// Base URLs that are probably a mistake, each with its provider.
pub(crate) fn doubtful_origins(config: &Config) -> Vec<(&ProviderConfig, Problem)> {
    let doubts = config.providers.iter().flat_map(|provider| {
        let doubts = provider.origin.iter().flat_map(Origin::doubts);
        doubts.map(move |doubt| {
            let message = format!("base_url: {doubt}");
            (provider, Problem { place: provider.place.clone(), message })
        })
    });
    doubts.collect()
}

/// Warns of base URLs that are probably a mistake.
pub(crate) fn warn_of_origins(config: &Config) {
    for (provider, problem) in doubtful_origins(config) {
        tracing::warn!(provider = %provider.name, "{problem}");
    }
}

/// The built-in models that are missing because the configuration names others, each with the lines
/// that would keep it.
pub(crate) fn absent_models(config: &Config) -> BTreeMap<String, String> {
    if config.is_demo() {
        return BTreeMap::new();
    }
    let (_, built_in) = config::demo();
    let absent = built_in.into_iter().filter(|model| config.models.iter().all(|own| own.id != model.id));
    absent.map(|model| (model.id.clone(), advice(&model, config))).collect()
}

/// Logs the missing built-in models.
pub(crate) fn tell_absent(absent: &BTreeMap<String, String>) {
    for (model, advice) in absent {
        tracing::info!(model, "a built-in model is not served: {advice}");
    }
}

fn advice(model: &ModelConfig, config: &Config) -> String {
    let mut lines = String::new();
    let own = config.providers.iter().find(|provider| provider.adapter == DEMO_ADAPTER);
    let is_taken = config.providers.iter().any(|provider| provider.name == DEMO_ADAPTER);
    let provider = match own {
        Some(own) => &own.name,
        None if is_taken => "built-in",
        None => DEMO_ADAPTER,
    };
    if own.is_none() {
        lines.push_str(&format!("[[providers]]\nname = \"{provider}\"\nadapter = \"{DEMO_ADAPTER}\"\n"));
    }
    lines.push_str(&format!("[[models]]\nid = \"{}\"\n", model.id));
    if model.kind == ModelKind::Embeddings {
        lines.push_str("kind = \"embeddings\"\n");
    }
    let upstream = model.endpoints.first().map_or("", |endpoint| endpoint.target.model.as_str());
    lines.push_str(&format!("endpoints = [{{ provider = \"{provider}\", model = \"{upstream}\" }}]"));
    format!(
        "it is there while the configuration names no provider and no model; these lines keep it:\n{lines}"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str) -> Config {
        Config::parse(text, Path::new("cofferdam.toml"), Path::new("data")).unwrap()
    }

    #[test]
    fn advised_lines_keep_the_built_in_models() {
        let ollama = "[[providers]]\nname = \"NAME\"\nadapter = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
        for text in [
            ollama.replace("NAME", "ollama"),
            ollama.replace("NAME", "demo"),
            "[[providers]]\nname = \"mine\"\nadapter = \"demo\"\n".to_owned(),
        ] {
            let absent = absent_models(&parsed(&text));
            assert_eq!(absent.keys().collect::<Vec<_>>(), ["local/demo", "local/embed"], "{text}");
            for (model, advice) in &absent {
                let lines = advice.split_once(":\n").unwrap().1;
                let kept = absent_models(&parsed(&format!("{text}{lines}\n")));
                assert!(!kept.contains_key(model), "{lines}");
                assert_eq!(kept.len(), 1, "{lines}");
            }
        }
        assert!(absent_models(&parsed("")).is_empty());
    }
}
