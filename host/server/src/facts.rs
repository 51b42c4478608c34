//! Catalog and plugins as `models` and `plugin list` show them.

use cofferdam_engine::catalog::Catalog;
use cofferdam_runtime::{PluginState, Plugins};

use crate::command::{Facts, ModelFacts, PluginFacts};

/// What can be said without a store and without serving.
#[must_use]
pub(crate) fn of(catalog: &Catalog, plugins: &Plugins) -> Facts {
    let model = |model: &std::sync::Arc<cofferdam_engine::catalog::Model>| ModelFacts {
        id: model.id.clone(),
        kind: model.kind.as_str(),
        context_length: model.context_length,
        providers: model.endpoints.iter().map(|endpoint| endpoint.provider.name.clone()).collect(),
    };
    let plugin = |plugin: &std::sync::Arc<cofferdam_runtime::Plugin>| PluginFacts {
        name: plugin.name().to_owned(),
        kind: plugin.kind().as_str().to_owned(),
        version: plugin.manifest().version.clone(),
        origin: plugin.origin().to_owned(),
        digest: plugin.digest().to_owned(),
        state: state(&plugin.state()),
        denied: plugin.denials().iter().map(|denial| denial.line.clone()).collect(),
    };
    Facts {
        serving: None,
        models: catalog.models().iter().map(model).collect(),
        plugins: plugins.iter().map(plugin).collect(),
    }
}

fn state(state: &PluginState) -> String {
    match state {
        PluginState::NotCompiled => "not compiled".to_owned(),
        PluginState::Compiled { from_cache: true, ms } => format!("compiled, from the cache in {ms} ms"),
        PluginState::Compiled { from_cache: false, ms } => format!("compiled in {ms} ms"),
        PluginState::Failed(reason) => format!("does not compile: {reason}"),
    }
}
