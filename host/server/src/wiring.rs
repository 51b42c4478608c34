//! Builds the parts that answer requests from a checked configuration and loaded plugins. They are
//! built as a whole at start and at each reload, and never changed afterwards.

pub(crate) mod advice;
mod broadcast;
pub(crate) mod defaults;
mod hosted;
pub(crate) mod operator_secrets;
pub(crate) mod plugins;

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_egress::{Credential, Egress, Origin, Placement};
use cofferdam_engine::catalog::{self, Catalog, Endpoint, ModelKind, Provider};
use cofferdam_engine::export::{Broadcaster, Destination};
use cofferdam_engine::memory::health::EndpointKey;
use cofferdam_engine::{
    AllowedOptions, Authentication, Engine, EngineParts, Memory, OperatorKey, PluginDefaults, Shutdown,
};
use cofferdam_runtime::manifest::CredentialSlot;
use cofferdam_runtime::{LoadError, PluginKind, Plugins, Runtime};
use cofferdam_store::{BoundSecret, Clock, HostNameError, Secret, SecretName, Store};

use crate::config::{self, Config, ConfigError, ConfigSpan, Environment, KeySource, Of, Problem};
use crate::installed::{InstalledError, PluginPlaces};
use crate::telemetry::PluginLines;

pub(crate) use plugins::embedded_component;

/// Everything that a reload replaces.
pub(crate) struct LiveConfig {
    pub config: Config,
    pub engine: Arc<Engine>,
    pub providers: Vec<Arc<Provider>>,
    /// Exports records of finished requests to the configured destinations.
    pub broadcast: Broadcaster,
    /// When it was built, in seconds of Unix time.
    pub loaded_s: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// The configuration names something that does not exist or does not fit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Plugins(#[from] LoadError),
    #[error(transparent)]
    Installed(#[from] InstalledError),
    #[error("[egress]: {0}")]
    Egress(#[from] cofferdam_egress::EgressConfigError),
    #[error(transparent)]
    Router(#[from] cofferdam_engine::NoRouter),
    #[error("[[broadcast]]: the system refuses a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl WiringError {
    /// The name of the plugin that cannot be used.
    pub(crate) fn plugin(&self) -> Option<&str> {
        match self {
            Self::Plugins(error) => error.plugin(),
            Self::Installed(error) => error.plugin(),
            Self::Config(_) | Self::Egress(_) | Self::Router(_) | Self::Thread(_) => None,
        }
    }
}

/// Services that live as long as the process and are shared by all configurations.
#[derive(Clone)]
pub(crate) struct SharedServices {
    pub runtime: Runtime,
    pub store: Store,
    pub clock: Clock,
    /// Values of environment variables that the configuration names. They are read once and then
    /// removed from the process.
    pub environment: Arc<Environment>,
    /// Health of endpoints and sessions of clients; both survive a reload.
    pub memory: Arc<Memory>,
    /// Signals to running requests that the host is stopping.
    pub ending: Shutdown,
    /// The last log lines about each plugin.
    pub lines: PluginLines,
}

/// The providers and the catalog of a configuration, with the plugins they need.
pub(crate) struct CatalogServices {
    pub plugins: Plugins,
    pub providers: Vec<Arc<Provider>>,
    pub catalog: Catalog,
    pub destinations: Vec<Destination>,
    /// Plugins that apply to requests that do not name them.
    pub defaults: PluginDefaults,
}

/// Loads the plugins and builds the catalog. Needs no store, so `serve --check` can use it.
///
/// # Errors
///
/// The configuration cannot be served. All problems with providers, models and destinations are
/// reported together.
pub(crate) fn catalog_services(
    config: &Config,
    places: PluginPlaces<'_>,
    runtime: &Runtime,
    environment: &Environment,
    memory: &Memory,
    now_s: u64,
) -> Result<CatalogServices, WiringError> {
    let plugins = loaded(config, places, runtime)?;
    let mut credentials = environment.credentials(config)?;
    let demo = config.is_demo().then(config::demo);
    let (configured, models) = match &demo {
        Some((providers, models)) => (providers, models),
        None => (&config.providers, &config.models),
    };
    let mut problems = Vec::new();
    let defaults = defaults::read(&config.workspaces, &plugins, &mut problems);
    let mut providers = BTreeMap::new();
    for written in configured {
        let secret = credentials.remove(&Of::Provider(written.name.clone()));
        match provider(written, &plugins, secret, memory) {
            Ok(provider) => {
                providers.insert(written.name.as_str(), Arc::new(provider));
            }
            Err(message) => problems.push(problem(&written.place, message)),
        }
    }
    let destinations = broadcast::destinations(config, &mut credentials, &mut problems);
    check_kinds(models, &providers, &mut problems);
    hosted::check(models, &providers, &mut problems);
    if !problems.is_empty() {
        return Err(ConfigError::Invalid(problems).into());
    }
    let models = models.iter().map(|written| model(written, &providers, memory)).collect();
    let catalog = Catalog::new(models, now_s).with_absent(advice::absent_models(config));
    let providers = configured.iter().filter_map(|written| providers.get(written.name.as_str()).cloned());
    Ok(CatalogServices { plugins, providers: providers.collect(), catalog, destinations, defaults })
}

/// Loads the plugins of a configuration.
///
/// # Errors
///
/// A plugin cannot be loaded.
pub(crate) fn loaded(
    config: &Config,
    places: PluginPlaces<'_>,
    runtime: &Runtime,
) -> Result<Plugins, WiringError> {
    let installed = places.installed()?;
    let plugins = plugins::load(runtime, installed, places.folder, config);
    plugins.map_err(|error| placed(error, config))
}

/// Turns a missing or wrongly pinned plugin into an error with its line in the configuration.
fn placed(error: LoadError, config: &Config) -> WiringError {
    let (name, message) = match &error {
        LoadError::UnknownPlugin { name } => {
            (name, "no plugin of this name is installed; `plugin list` names them".to_owned())
        }
        LoadError::Pinned { name, origin, digest, .. } => {
            (name, format!("sha256 does not fit: the component of {origin} has {digest}"))
        }
        _ => return error.into(),
    };
    match config.plugin_places.get(name) {
        Some(place) => ConfigError::Invalid(vec![problem(place, message)]).into(),
        None => error.into(),
    }
}

/// Builds everything that serves requests under a configuration.
pub(crate) fn live(
    config: Config,
    places: PluginPlaces<'_>,
    services: &SharedServices,
) -> Result<LiveConfig, WiringError> {
    let SharedServices { runtime, store, clock, environment, memory, ending, lines: _ } = services;
    let CatalogServices { plugins, providers, catalog, destinations, defaults } =
        catalog_services(&config, places, runtime, environment, memory, clock.now_ms() / 1000)?;
    hosted::warn_of_unlisted(&catalog, &providers);
    advice::warn_of_origins(&config);
    advice::tell_absent(&advice::absent_models(&config));
    let egress = Egress::new(config.egress.clone())?;
    let broadcast = Broadcaster::start(destinations, &egress, store, &memory.meters)?;
    let engine = Engine::new(EngineParts {
        plugins,
        egress,
        store: store.clone(),
        catalog,
        prompts: config.prompts.clone(),
        items_max: config.limits.items_max,
        broadcast: broadcast.clone(),
        defaults,
        timeouts: config.timeouts.response,
        ending: ending.clone(),
        region: config.server.region.clone(),
        eject: config.routing.eject,
        retry: config.routing.retry,
        clock: clock.clone(),
        memory: Arc::clone(memory),
    })?;
    Ok(LiveConfig { config, engine: Arc::new(engine), providers, broadcast, loaded_s: clock.now_ms() / 1000 })
}

/// Drops what only the previous configuration used. It is called when the new one begins to serve, because a
/// configuration that is refused must change nothing.
pub(crate) fn take_over(live: &LiveConfig, services: &SharedServices) {
    services.runtime.retain(live.engine.plugins());
    services.memory.recorder().keep(live.config.server.recorder);
}

/// Warns of workspaces and secrets that the configuration names and the store lacks.
pub(crate) async fn warn_of_absent(config: &Config, store: &Store) {
    defaults::warn_of_unknown(&config.workspaces, store).await;
    operator_secrets::warn_of_missing(config, store).await;
}

fn provider(
    written: &config::ProviderConfig,
    plugins: &Plugins,
    secret: Option<Secret>,
    memory: &Memory,
) -> Result<Provider, String> {
    let wanted = format!("provider-{}", written.adapter);
    let adapter = plugins.get(&wanted).filter(|plugin| plugin.kind() == PluginKind::Provider);
    let Some(adapter) = adapter else {
        let known = plugins.iter().filter(|plugin| plugin.kind() == PluginKind::Provider);
        let known: Vec<&str> = known.filter_map(|plugin| plugin.name().strip_prefix("provider-")).collect();
        return Err(format!(
            "there is no plugin {wanted} for adapter `{}`; known adapters: {}",
            written.adapter,
            known.join(", ")
        ));
    };
    let slot = adapter.manifest().provider.as_ref().and_then(|provider| provider.credential.as_ref());
    if written.origin.is_none() && slot.is_some() {
        return Err(format!("base_url is missing: adapter `{}` sends requests", written.adapter));
    }
    let has_credential = written.key.is_some() || written.byok.is_some();
    let authentication = match slot {
        Some(slot) if has_credential => Some(authentication(written, slot, secret)?),
        None if has_credential => {
            return Err(format!("key: adapter `{}` sends no credential", written.adapter));
        }
        _ => None,
    };
    let table = adapter.manifest().provider.as_ref();
    if !written.betas.is_empty() && table.is_none_or(|table| table.betas.is_empty()) {
        return Err(format!("betas: adapter `{}` has none", written.adapter));
    }
    Ok(Provider {
        name: written.name.clone(),
        adapter: Arc::clone(adapter),
        origin: written.origin.clone(),
        authentication,
        options: AllowedOptions::new(table, &written.options, &written.betas),
        meter: memory.meters.provider(&written.name),
    })
}

/// Which credential requests to a provider carry. `environment` is the value of the variable that
/// `env:` names; it is absent where no request is sent, as in `serve --check`.
fn authentication(
    written: &config::ProviderConfig,
    slot: &CredentialSlot,
    environment: Option<Secret>,
) -> Result<Authentication, String> {
    let placement =
        Placement::credential_header(&slot.header, &slot.format).map_err(|error| format!("key: {error}"))?;
    let bound = |name: &SecretName, key: &str| {
        bound(name, written.origin.as_ref())
            .map_err(|error| format!("{key}: the host of base_url is {error}"))
    };
    let own = match &written.key {
        Some((source, _)) => operator_key(source, &placement, environment, |name| bound(name, "key"))?,
        None => None,
    };
    let byok = written.byok.as_ref().map(|name| bound(name, "byok")).transpose()?;
    Ok(Authentication { placement, own, byok })
}

/// The operator's credential, unless its variable was not read.
fn operator_key(
    source: &KeySource,
    placement: &Placement,
    environment: Option<Secret>,
    bound: impl Fn(&SecretName) -> Result<BoundSecret, String>,
) -> Result<Option<OperatorKey>, String> {
    match source {
        KeySource::Operator(name) => bound(name).map(OperatorKey::Vault).map(Some),
        KeySource::Env(_) => {
            let fixed = environment.map(|secret| Credential::new(placement, secret.expose()));
            Ok(fixed.transpose().map_err(|error| format!("key: {error}"))?.map(OperatorKey::Fixed))
        }
    }
}

fn bound(name: &SecretName, origin: Option<&Origin>) -> Result<BoundSecret, HostNameError> {
    Ok(BoundSecret { name: name.clone(), host: origin.map_or("", Origin::host).parse()? })
}

/// Reports endpoints whose provider does not serve models of their kind.
fn check_kinds(
    models: &[config::ModelConfig],
    providers: &BTreeMap<&str, Arc<Provider>>,
    problems: &mut Vec<Problem>,
) {
    for model in models {
        for (index, endpoint) in model.endpoints.iter().enumerate() {
            // Unknown providers were already reported when the configuration was checked.
            let Some(provider) = providers.get(endpoint.candidate.provider.as_str()) else { continue };
            let serves = match model.kind {
                ModelKind::Responses => provider.adapter.exports_generation(),
                ModelKind::Embeddings => provider.adapter.exports_embedding(),
            };
            if !serves {
                let (adapter, kind) = (provider.adapter.name(), model.kind.as_str());
                let message =
                    format!("endpoints[{index}].provider: {adapter} serves no models of kind `{kind}`");
                problems.push(problem(&model.place, message));
            }
        }
    }
}

fn model(
    written: &config::ModelConfig,
    providers: &BTreeMap<&str, Arc<Provider>>,
    memory: &Memory,
) -> catalog::Model {
    let endpoints = written.endpoints.iter().filter_map(|endpoint| {
        // Unknown providers were already reported when the configuration was checked.
        let provider = providers.get(endpoint.candidate.provider.as_str())?;
        Some(Arc::new(self::endpoint(endpoint, provider, memory)))
    });
    catalog::Model {
        id: written.id.clone(),
        kind: written.kind,
        context_length: written.context_length,
        endpoints: endpoints.collect(),
    }
}

fn endpoint(written: &config::EndpointConfig, provider: &Arc<Provider>, memory: &Memory) -> Endpoint {
    let config::EndpointConfig { prices, hosted, candidate, target, first_event, reasons } = written.clone();
    let health = memory.endpoint(EndpointKey {
        model: candidate.model.clone(),
        provider: provider.name.clone(),
        upstream: target.model.clone(),
        tier: target.tier.clone(),
    });
    Endpoint {
        provider: Arc::clone(provider),
        prices,
        hosted,
        candidate,
        target,
        first_event,
        reasons,
        health,
    }
}

fn problem(place: &ConfigSpan, message: String) -> Problem {
    Problem { place: place.clone(), message }
}
