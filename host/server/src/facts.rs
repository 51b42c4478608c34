//! What a host can say of itself to operators: catalog, plugins, and whether it
//! serves. Read from the parts that run, so that it cannot differ from them.

use std::collections::BTreeSet;

use cofferdam_engine::catalog::Catalog;
use cofferdam_runtime::{Asked, Grant, Manifest, Plugin, PluginState, Plugins, WrittenInjection};
use serde::Serialize;

/// What a host knows beside its store.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Set when the answering process serves.
    pub serving: Option<Serving>,
    /// The catalog as the configuration has it.
    pub models: Vec<ModelFacts>,
    /// What is installed.
    pub plugins: Vec<PluginFacts>,
}

/// About a process that serves.
#[derive(Debug, Clone, Serialize)]
pub struct Serving {
    /// Its process id.
    pub pid: u32,
    /// Where clients connect.
    pub listen: String,
    /// Where health checks and metrics are.
    pub admin: String,
    /// False before plugins are compiled and while it stops.
    pub ready: bool,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Requests whose answer is not done.
    pub requests_running: u64,
}

/// One model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelFacts {
    /// What clients ask for.
    pub id: String,
    /// `responses` or `embeddings`.
    pub kind: &'static str,
    /// Tokens of input and output together.
    pub context_length: Option<u32>,
    /// The providers that serve it, in order.
    pub providers: Vec<String>,
}

/// One plugin.
#[derive(Debug, Clone, Serialize)]
pub struct PluginFacts {
    /// Its name.
    pub name: String,
    /// Router, provider, hook or tool.
    pub kind: String,
    /// As its manifest says.
    pub version: String,
    /// Where its component came from.
    pub origin: String,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Whether it is compiled, or lacks a grant that it cannot do without.
    pub state: String,
    /// What its manifest asks for; `*` is whatever the operator names.
    pub asks: Reach,
    /// What it may do; `*` is every public host, without a secret.
    pub granted: Reach,
    /// Lines of configuration that would grant what it asks for and did not get.
    pub denied: Vec<String>,
    /// What the configuration grants and it does not ask for.
    pub idle: Vec<String>,
}

/// What a plugin can do beyond its sandbox.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reach {
    /// Interfaces of the host.
    pub imports: Vec<String>,
    /// Hosts its requests go to.
    pub hosts: Vec<String>,
    /// Secrets that may go along.
    pub secrets: Vec<String>,
    /// Which of them go along always, and where they stand.
    pub injections: Vec<WrittenInjection>,
    /// Headers that may have placeholders.
    pub placeholder_headers: Vec<String>,
}

impl Reach {
    fn asked(manifest: &Manifest) -> Self {
        Self {
            imports: texts(&manifest.imports),
            hosts: asked(&manifest.hosts),
            secrets: asked(&manifest.secrets),
            injections: manifest.injections.iter().map(WrittenInjection::from).collect(),
            placeholder_headers: texts(&manifest.placeholder_headers),
        }
    }

    fn granted(grant: &Grant) -> Self {
        Self {
            imports: texts(&grant.imports),
            hosts: grant.hosts.iter().map(str::to_owned).collect(),
            secrets: texts(&grant.secrets),
            injections: grant.injections.iter().map(WrittenInjection::from).collect(),
            placeholder_headers: texts(&grant.placeholder_headers),
        }
    }
}

fn asked<T: Ord + ToString>(asked: &Asked<T>) -> Vec<String> {
    match asked {
        Asked::Any => vec!["*".to_owned()],
        Asked::Named(names) => texts(names),
    }
}

fn texts<T: ToString>(names: &BTreeSet<T>) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// What can be said without a store and without serving.
#[must_use]
pub(crate) fn of(catalog: &Catalog, plugins: &Plugins) -> Facts {
    let model = |model: &std::sync::Arc<cofferdam_engine::catalog::Model>| ModelFacts {
        id: model.id.clone(),
        kind: model.kind.as_str(),
        context_length: model.context_length,
        providers: model.endpoints.iter().map(|endpoint| endpoint.provider.name.clone()).collect(),
    };
    Facts {
        serving: None,
        models: catalog.models().iter().map(model).collect(),
        plugins: plugins.iter().map(|plugin| plugin_facts(plugin)).collect(),
    }
}

/// What can be said of one plugin.
pub(crate) fn plugin_facts(plugin: &Plugin) -> PluginFacts {
    PluginFacts {
        name: plugin.name().to_owned(),
        kind: plugin.kind().as_str().to_owned(),
        version: plugin.manifest().version.clone(),
        origin: plugin.origin().to_owned(),
        digest: plugin.digest().to_owned(),
        state: state(plugin),
        asks: Reach::asked(plugin.manifest()),
        granted: Reach::granted(plugin.grant()),
        denied: plugin.denials().iter().map(|denial| denial.line.clone()).collect(),
        idle: plugin.idle_grants().to_vec(),
    }
}

fn state(plugin: &Plugin) -> String {
    match plugin.state() {
        _ if !plugin.is_usable() => "not granted".to_owned(),
        PluginState::NotCompiled => "not compiled".to_owned(),
        PluginState::Compiled { from_cache: true, ms } => format!("compiled, from the cache in {ms} ms"),
        PluginState::Compiled { from_cache: false, ms } => format!("compiled in {ms} ms"),
        PluginState::Failed(reason) => format!("does not compile: {reason}"),
    }
}
