//! `doctor`: looks for what is wrong with an installation and says what to do. The process that
//! holds the store does the checks, so that a running host reports its own limits, credentials and
//! plugins. Nothing is changed, apart from a compile cache that does not exist yet and audit records
//! of credentials that are tried.

mod certificate;
mod configuration;
mod files;
mod finding;
mod machine;
mod plugins;
mod providers;
mod store;

use std::sync::Arc;

use cofferdam_engine::Memory;
use cofferdam_engine::catalog::Provider;
use cofferdam_runtime::{Plugins, Runtime};
use cofferdam_store::{Clock, DirectoryLock, LockError, OpenError, Store};
use tracing::subscriber::NoSubscriber;

use crate::app::{Addresses, App};
use crate::command::{CommandOutcome, DoctorArguments};
use crate::config::{Config, Environment};
use crate::failure::Failure;
use crate::installed::PluginPlaces;
use crate::options::Options;
use crate::start::{StoreUse, block_on, connect, open, runtime};
use crate::tls::Tls;
use crate::wiring;

pub(crate) use files::mode;
pub(crate) use finding::{CheckFinding, outcome};

/// What is looked at.
struct Installation<'i> {
    options: &'i Options,
    config: &'i Config,
    /// See [`DoctorArguments::data_mode`].
    data_mode: Option<u32>,
    has_store: bool,
    store: Option<&'i Store>,
    /// The addresses of the running host.
    at: Option<Addresses>,
    /// The certificate that the running host serves.
    tls: Option<&'i Tls>,
    now_ms: u64,
    /// Nothing is sent.
    offline: bool,
}

/// The parts that answer requests, as far as they could be built.
struct Parts<'p> {
    runtime: Option<&'p Runtime>,
    plugins: Option<&'p Plugins>,
    providers: &'p [Arc<Provider>],
}

/// Checks an installation without a running host.
///
/// # Errors
///
/// There is no thread to wait on. All else is a finding.
pub(crate) fn alone(
    options: &Options,
    arguments: &DoctorArguments,
    lock: Result<Option<DirectoryLock>, LockError>,
) -> Result<CommandOutcome, Failure> {
    let config = match Config::load(options.config.as_deref(), &options.data) {
        Ok(config) => config,
        Err(error) => return Ok(outcome(&configuration::refused(&error.into()))),
    };
    let environment = Environment::incomplete();
    environment.take(&config);
    let mut findings = Vec::new();
    let lock = lock.map_err(|error| findings.push(files::refused(&error))).ok().flatten();
    let mut failed = |failure: Failure| findings.extend(configuration::refused(&failure));
    let runtime = runtime(&config, &options.data).map_err(&mut failed).ok();
    let services = runtime.as_ref().and_then(|runtime| {
        let places = PluginPlaces::new(&options.data, arguments.folder.plugins.as_deref());
        let built = wiring::catalog_services(&config, places, runtime, &environment, &Memory::default(), 0);
        built.map_err(|error| failed(error.into())).ok()
    });
    let mut has_store = config.store.database.is_some() || Store::exists(&options.data).unwrap_or(true);
    let opened = match (&config.store.database, lock) {
        (Some(database), _) => Some(connect(&config, database, StoreUse::Command)),
        (None, Some(lock)) if has_store => Some(open(&config, lock, None).map_err(Failure::from)),
        (None, _) => None,
    };
    has_store &= !matches!(opened, Some(Err(Failure::Open(OpenError::NoStore))));
    let store = opened.and_then(|opened| opened.map_err(|error| findings.push(store::refused(&error))).ok());
    let installation = Installation {
        options,
        config: &config,
        data_mode: arguments.data_mode,
        has_store,
        store: store.as_ref(),
        at: None,
        tls: None,
        now_ms: Clock::system().now_ms(),
        offline: arguments.offline,
    };
    findings.extend(configuration::variables(&installation, &environment));
    let parts = Parts {
        runtime: runtime.as_ref(),
        plugins: services.as_ref().map(|services| &services.plugins),
        providers: services.as_ref().map(|services| services.providers.as_slice()).unwrap_or_default(),
    };
    let findings = block_on(examine(&installation, parts, findings));
    if let Some(store) = store {
        store.close();
    }
    Ok(outcome(&findings?))
}

/// What the console asks for: nothing is sent to providers.
pub(crate) fn of_console(app: &App) -> DoctorArguments {
    let data_mode = mode(&app.grants.options().data);
    DoctorArguments { offline: true, data_mode, ..DoctorArguments::default() }
}

/// Checks the installation of the running host.
pub(crate) async fn serving(app: &App, arguments: &DoctorArguments) -> Vec<CheckFinding> {
    let live = app.live_config();
    let options = app.grants.options();
    // What a check reads is in its findings. The log would repeat it at every look of a console.
    let checked = tracing::subscriber::with_default(NoSubscriber::default(), || app.grants.check_file());
    let findings = match checked {
        Ok(()) => Vec::new(),
        Err(failure) => configuration::refused(&failure),
    };
    let installation = Installation {
        options,
        config: &live.config,
        data_mode: arguments.data_mode,
        has_store: true,
        store: Some(&app.store),
        at: Some(app.addresses()),
        tls: app.tls().map(Arc::as_ref),
        now_ms: app.clock.now_ms(),
        offline: arguments.offline,
    };
    let parts = Parts {
        runtime: Some(&app.runtime),
        plugins: Some(live.engine.plugins()),
        providers: &live.providers,
    };
    examine(&installation, parts, findings).await
}

/// All checks. `findings` are those that were made while the parts were built.
async fn examine(
    installation: &Installation<'_>,
    parts: Parts<'_>,
    mut findings: Vec<CheckFinding>,
) -> Vec<CheckFinding> {
    let is_refused = findings.iter().any(|finding| finding.id == "configuration");
    let mut warnings = configuration::check(installation).await;
    // A configuration that is refused is not good for its lack of warnings.
    warnings.retain(|finding| !is_refused || finding.remedy.is_some());
    findings.extend(warnings);
    findings.extend(files::check(installation));
    if !installation.has_store && installation.config.store.database.is_none() {
        findings.push(CheckFinding::ok("store", "store", "there is none yet; `serve` makes it"));
    }
    if let Some(store) = installation.store {
        findings.extend(store::check(store, installation).await);
    }
    findings.push(machine::open_files(installation));
    if let Some(runtime) = parts.runtime {
        findings.push(machine::address_space(runtime));
        findings.push(machine::compile_cache(runtime, installation));
    }
    findings.extend(certificate::check(installation));
    findings.extend(machine::listeners(installation).await);
    if let Some(plugins) = parts.plugins {
        findings.extend(plugins::check(plugins, installation));
    }
    findings.extend(Box::pin(providers::check(parts.providers, installation)).await);
    findings
}
