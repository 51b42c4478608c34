//! Checks the hosted tools (tools that a provider runs itself) that the configuration lists for
//! endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cofferdam_engine::catalog::{Catalog, Provider};

use super::problem;
use crate::config::{self, Problem};

/// The hosted tools of the provider's dialect, by type.
fn known(provider: &Provider) -> Vec<&str> {
    let table = provider.adapter.manifest().provider.as_ref();
    table.into_iter().flat_map(|table| table.hosted_tools.keys()).map(String::as_str).collect()
}

/// Reports listed tools that the dialect of their provider does not have.
pub(super) fn check(
    models: &[config::ModelConfig],
    providers: &BTreeMap<&str, Arc<Provider>>,
    problems: &mut Vec<Problem>,
) {
    for model in models {
        for (index, endpoint) in model.endpoints.iter().enumerate() {
            // Unknown providers were already reported when the configuration was checked.
            let provider = providers.get(endpoint.candidate.provider.as_str());
            let message = provider.and_then(|provider| unknown(endpoint, provider));
            problems.extend(
                message.map(|message| {
                    problem(&model.place, format!("endpoints[{index}].hosted_tools: {message}"))
                }),
            );
        }
    }
}

/// The error message for an endpoint's list, if it has a mistake.
fn unknown(endpoint: &config::EndpointConfig, provider: &Provider) -> Option<String> {
    let known = known(provider);
    let states =
        |tool: &str| endpoint.target.supports.iter().any(|it| it.strip_suffix("_tools") == Some(tool));
    let mut listed = endpoint.hosted.tools.keys();
    let tool = listed.find(|tool| !known.contains(&tool.as_str()) && !states(tool))?;
    let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Some(format!("{} has no tool `{tool}`; it has {has}", provider.adapter.name()))
}

/// Warns of each provider whose dialect has hosted tools while none of its endpoints lists any.
pub(super) fn warn_of_unlisted(catalog: &Catalog, providers: &[Arc<Provider>]) {
    let mut listing = BTreeSet::new();
    let endpoints = catalog.endpoints().filter(|endpoint| !endpoint.hosted.tools.is_empty());
    listing.extend(endpoints.map(|endpoint| endpoint.provider.name.as_str()));
    for provider in providers.iter().filter(|provider| !listing.contains(provider.name.as_str())) {
        let known = known(provider);
        if !known.is_empty() {
            tracing::warn!(
                provider = %provider.name,
                tools = known.join(", "),
                "no endpoint of this provider lists hosted_tools: its own tools are refused on the operator's key"
            );
        }
    }
}
