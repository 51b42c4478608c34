//! Facts about a host for operators: catalog, plugins, and whether it serves. They are read from
//! the running parts, so they are always up to date.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_engine::catalog::Catalog;
use cofferdam_runtime::{Asked, Grant, Manifest, Plugin, PluginState, Plugins, WrittenInjection};
use serde::Serialize;

/// What a host can report besides its store.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Set if the answering process serves.
    pub serving: Option<Serving>,
    pub models: Vec<ModelFacts>,
    /// Installed plugins.
    pub plugins: Vec<PluginFacts>,
    /// Updates of plugins that wait until the operator accepts them.
    pub held: Vec<HeldFacts>,
}

/// An update that asks for more than the version that serves.
#[derive(Debug, Clone, Serialize)]
pub struct HeldFacts {
    pub plugin: String,
    pub version: String,
    /// The digest by which it is accepted.
    pub digest: String,
    /// The version that serves.
    pub serving: String,
    pub asks_more: Vec<String>,
}

impl HeldFacts {
    /// The command that accepts this update and no other one.
    pub(crate) fn accept_command(&self) -> String {
        format!("cofferdam plugin grant {} --accept --digest {}", self.plugin, self.digest)
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Serving {
    pub pid: u32,
    /// The address for clients.
    pub listen: String,
    /// The address for health checks and metrics.
    pub admin: String,
    /// Whether both addresses speak TLS.
    pub tls: bool,
    /// False until the plugins are compiled, and while the host stops.
    pub ready: bool,
    pub uptime_s: u64,
    /// Requests whose response is not finished.
    pub requests_running: u64,
    /// How often configuration and plugins were read again since the start.
    pub reloads: u64,
    /// How often they were not taken.
    pub reloads_refused: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct ModelFacts {
    pub id: String,
    /// `responses` or `embeddings`.
    pub kind: &'static str,
    /// The maximum of input and output tokens together.
    pub context_length: Option<u32>,
    /// In order of preference.
    pub providers: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct PluginFacts {
    pub name: String,
    /// Router, provider, hook or tool.
    pub kind: String,
    /// The type of the tool that it is: requests name it `service:TYPE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_type: Option<String>,
    /// From its manifest.
    pub version: String,
    /// The version that `plugin rollback` brings back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousFacts>,
    /// The line of the contract that its component is built for.
    pub line: &'static str,
    /// Where its component was loaded from.
    pub origin: String,
    /// SHA-256 of the component, in hexadecimal.
    pub digest: String,
    /// Whether it is compiled, or lacks a required grant.
    pub state: String,
    /// What its manifest asks for. `*` stands for names that the operator chooses.
    pub asks: PluginReach,
    /// What it is granted. `*` as a host stands for every public host, without secrets.
    pub granted: PluginReach,
    /// Lines of configuration that would grant what it asks for and does not have.
    pub denied: Vec<String>,
    /// Grants of the configuration that its manifest does not ask for.
    pub idle: Vec<String>,
    /// What it did since the host loaded it; absent where no host runs.
    #[serde(flatten)]
    pub work: Option<PluginWork>,
}

/// The version of an installed plugin that served before.
#[derive(Debug, Clone, Serialize)]
pub struct PreviousFacts {
    pub version: String,
    pub installed_at: String,
}

/// What a plugin did since the host loaded it.
#[derive(Debug, Clone, Serialize)]
pub struct PluginWork {
    /// Calls into it.
    pub calls: u64,
    /// The time that its code ran, in seconds.
    pub busy_s: f64,
    /// Calls that failed, by kind; the label `kind` of `cofferdam_plugin_errors_total` has the
    /// kinds.
    pub errors: BTreeMap<&'static str, u64>,
}

impl PluginWork {
    pub(crate) fn of(plugin: &Plugin) -> Self {
        let values = plugin.counters().values();
        Self { calls: values.calls, busy_s: values.busy_ns as f64 / 1e9, errors: values.errors }
    }
}

/// What a plugin can use outside its sandbox.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PluginReach {
    /// Interfaces of the host.
    pub imports: Vec<String>,
    /// Hosts to which it may send requests.
    pub hosts: Vec<String>,
    /// Secrets that its requests may carry.
    pub secrets: Vec<String>,
    /// Secrets that its requests always carry, and their position in the request.
    pub injections: Vec<WrittenInjection>,
    /// Headers in which it may use placeholders for secrets.
    pub placeholder_headers: Vec<String>,
}

impl PluginReach {
    pub(crate) fn asked(manifest: &Manifest) -> Self {
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

/// The facts that need neither a store nor a running server.
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
        held: Vec::new(),
    }
}

pub(crate) fn plugin_facts(plugin: &Plugin) -> PluginFacts {
    PluginFacts {
        name: plugin.name().to_owned(),
        kind: plugin.kind().as_str().to_owned(),
        tool_type: plugin.manifest().tool.as_ref().map(|tool| tool.tool_type.clone()),
        version: plugin.manifest().version.clone(),
        previous: None,
        line: plugin.line().name(),
        origin: plugin.origin().to_owned(),
        digest: plugin.digest().to_owned(),
        state: state(plugin),
        asks: PluginReach::asked(plugin.manifest()),
        granted: PluginReach::granted(plugin.grant()),
        denied: plugin.denials().iter().map(|denial| denial.line.clone()).collect(),
        idle: plugin.idle_grants().to_vec(),
        work: None,
    }
}

fn state(plugin: &Plugin) -> String {
    match plugin.state() {
        _ if !plugin.is_usable() => "not granted".to_owned(),
        PluginState::NotCompiled => "not compiled".to_owned(),
        PluginState::Cached => "compiled, in the cache".to_owned(),
        PluginState::Compiled { from_cache: true, ms } => format!("compiled, from the cache in {ms} ms"),
        PluginState::Compiled { from_cache: false, ms } => format!("compiled in {ms} ms"),
        PluginState::Failed(reason) => format!("does not compile: {reason}"),
    }
}
