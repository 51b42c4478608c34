//! Loads plugins: reads manifests and components, checks both and combines the manifests' requests
//! with the operator's grants. Nothing is compiled here.

mod folder;
mod source;
mod unique;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::hex;
use sha2::{Digest, Sha256};

use crate::cache::{Cache, CacheLimits};
use crate::contract::{self, ContractLine, Finding};
use crate::counters::CounterValues;
use crate::engine::{Sandbox, Ticker};
use crate::error::{ContractError, LoadError, StartError};
use crate::grant::{Denial, Grant, Joined, OperatorGrant};
use crate::host::{Gauges, Host};
use crate::manifest::Manifest;
use crate::meter::{Meter, MeteredCall};
use crate::permits::InstancePermits;
use crate::plugin::{Plugin, PluginParts, Taping};
use crate::recorder::Recorder;
use crate::recording::{FORM, RecordingHead};
use crate::schedule::processors;
use crate::tape::{RecordingPlan, Tape};
use crate::warm::Warm;

pub use folder::{MANIFEST_BYTES_MAX, check_installed_folder, read_installed_file, read_plugin_dir};
pub use source::PluginSource;
pub use unique::shared_name;

use source::checked_manifest;

/// Settings of the runtime.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Number of responses that can be streamed at the same time. Determines how many instances
    /// there is room for.
    pub streams: usize,
    /// Directory of the compile cache.
    pub cache_dir: PathBuf,
    /// Directory of recordings of failing calls, for plugins whose grant has
    /// [`OperatorGrant::record`].
    pub recordings_dir: PathBuf,
    /// Interval at which a running guest can be interrupted; 2 ms in production.
    pub tick: Duration,
}

/// The sandbox of the process. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) host: Arc<Host>,
    /// The lines of the contract that it serves, the newest first.
    lines: &'static [&'static ContractLine],
    /// Absent in a sandbox that counts.
    recorder: Option<Arc<Recorder>>,
}

/// The installed plugins by name. Clones share them.
#[derive(Clone)]
pub struct Plugins {
    by_name: Arc<BTreeMap<String, Arc<Plugin>>>,
}

impl Runtime {
    /// Starts the sandbox and its epoch thread. If the cache directory cannot be trusted, the
    /// runtime works without a cache and logs a warning.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the machine cannot run the sandbox.
    pub fn start(config: RuntimeConfig) -> Result<Self, StartError> {
        let sandbox = Sandbox::start(config.streams)?;
        let cache = match Cache::open(&config.cache_dir, &sandbox.engine, CacheLimits::HOST) {
            Ok(cache) => Ok(cache),
            Err(error) => {
                let directory = config.cache_dir.display();
                tracing::warn!(%directory, %error, "no compile cache: every start compiles all plugins");
                Err(error.to_string())
            }
        };
        let warm = Arc::new(Warm::new(sandbox.instances as usize, processors()));
        let ticker = Ticker::start(&sandbox.engine, config.tick, Arc::clone(&warm))?;
        let recorder = Some(Arc::new(Recorder::new(&config.recordings_dir)));
        let host = Arc::new(Host::new(sandbox, config.streams, cache, warm, ticker));
        Ok(Self { host, lines: ContractLine::SERVED, recorder })
    }

    /// The same sandbox for plugins of these lines of the contract, the newest first, in place of
    /// [`ContractLine::SERVED`].
    #[must_use]
    pub fn serving(self, lines: &'static [&'static ContractLine]) -> Self {
        Self { lines, ..self }
    }

    /// Starts a sandbox that counts fuel and memory of every call, with the limits of any other. For
    /// checks of one plugin: only code of its last builds is kept in the cache, if one is named.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the machine cannot run the sandbox.
    pub fn start_metered(tick: Duration, cache_dir: Option<&Path>) -> Result<Self, StartError> {
        let sandbox = Sandbox::start_metered()?;
        let warm = Arc::new(Warm::new(sandbox.instances as usize, processors()));
        let ticker = Ticker::start(&sandbox.engine, tick, Arc::clone(&warm))?;
        let cache = match cache_dir {
            Some(directory) => Cache::open(directory, &sandbox.engine, CacheLimits::PROJECT)
                .map_err(|error| error.to_string()),
            None => Err("none is named".to_owned()),
        };
        let host = Arc::new(Host::new(sandbox, 1, cache, warm, ticker));
        Ok(Self { host, lines: ContractLine::SERVED, recorder: None })
    }

    /// What calls used since the last look. Empty unless the sandbox counts it.
    #[must_use]
    pub fn take_calls(&self) -> Vec<MeteredCall> {
        self.host.meter.as_ref().map(Meter::take).unwrap_or_default()
    }

    /// Checks manifests and components and combines them with the operator's grants. A plugin
    /// replaces the built-in plugin of its name if [`OperatorGrant::replaces`] allows it. Nothing
    /// is compiled; see [`Plugin::compile`].
    ///
    /// # Errors
    ///
    /// The first source that is wrong, or that claims a name or type of another plugin. Missing
    /// grants are not an error: they are listed by [`Plugin::denials`] and logged.
    pub fn load(
        &self,
        sources: Vec<PluginSource>,
        grants: &BTreeMap<String, OperatorGrant>,
    ) -> Result<Plugins, LoadError> {
        let chosen = choose(sources, grants)?;
        unique::check(chosen.values().map(|(manifest, source)| (manifest, source)))?;
        if let Some(name) = grants.keys().find(|name| !chosen.contains_key(*name)) {
            return Err(LoadError::UnknownPlugin { name: name.clone() });
        }
        let mut by_name = BTreeMap::new();
        for (name, (manifest, source)) in chosen {
            let plugin = self.load_one(manifest, source, grants.get(&name), None)?;
            by_name.insert(name, Arc::new(plugin));
        }
        Ok(Plugins { by_name: Arc::new(by_name) })
    }

    /// Drops native code that none of these plugins uses, and logs which of them record failing calls. It is
    /// called with the plugins that serve from now on, because plugins that are only checked are loaded too.
    pub fn retain(&self, plugins: &Plugins) {
        plugins.iter().for_each(|plugin| plugin.tell_recording());
        let installed: BTreeSet<&str> = plugins.iter().map(|plugin| plugin.digest()).collect();
        self.host.retain_loaded(|digest| installed.contains(digest));
    }

    /// What was counted for plugins, by name, since the start of the process.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, CounterValues)> {
        self.host.counters.all().into_iter().map(|(name, counters)| (name, counters.values())).collect()
    }

    /// How many instances are in use and free.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.host.gauges()
    }

    /// Why the compile cache cannot be used, if it cannot.
    #[must_use]
    pub fn cache_problem(&self) -> Option<&str> {
        self.host.cache.as_ref().err().map(String::as_str)
    }

    /// How many permits for instances are taken, in total and by the owner with this id.
    #[must_use]
    pub fn instance_permits(&self, owner: &str) -> InstancePermits {
        self.host.instance_permits(owner)
    }

    /// Loads one plugin to replay a call of it.
    ///
    /// # Errors
    ///
    /// Its manifest is wrong, or its component does not fit.
    pub(crate) fn load_to_replay(
        &self,
        source: PluginSource,
        operator: &OperatorGrant,
        tape: Arc<Tape>,
    ) -> Result<Arc<Plugin>, LoadError> {
        let manifest = checked_manifest(&source)?;
        self.load_one(manifest, source, Some(operator), Some(tape)).map(Arc::new)
    }

    fn load_one(
        &self,
        manifest: Manifest,
        source: PluginSource,
        operator: Option<&OperatorGrant>,
        tape: Option<Arc<Tape>>,
    ) -> Result<Plugin, LoadError> {
        let blame = |error| LoadError::Contract {
            name: manifest.name.clone(),
            origin: format!("{} ({})", source.origin, manifest.component),
            error,
        };
        let digest = source.digest.map_or_else(|| hex(&Sha256::digest(&source.component)), str::to_owned);
        if let Some(pinned) = operator.and_then(|grant| grant.sha256.as_ref()).filter(|pin| **pin != digest) {
            let (name, pinned) = (manifest.name, pinned.clone());
            return Err(LoadError::Pinned { origin: source.origin, name, pinned, digest });
        }
        let (line, finding) = self.finding(&digest, &source.component).map_err(blame)?;
        finding.suits(&manifest).map_err(blame)?;
        let nothing = OperatorGrant::default();
        let joined = Grant::join(&manifest, operator.unwrap_or(&nothing), &finding.used());
        // A plugin without a configuration is probably unused, so its missing grants are not
        // logged. `plugin list` shows them in any case.
        if operator.is_some() && tape.is_none() {
            report(&manifest.name, &joined);
        }
        let taping = match (tape, operator.and_then(|grant| grant.record), &self.recorder) {
            (Some(tape), ..) => Taping::Replay(tape),
            (None, Some(kept), Some(recorder)) => {
                let head = recording_head(&manifest, &source.manifest, &digest, line, &joined.grant);
                Taping::Record(Arc::new(RecordingPlan { recorder: Arc::clone(recorder), head, kept }))
            }
            _ => Taping::Off,
        };
        let PluginSource { component, origin, is_built_in, .. } = source;
        let host = Arc::clone(&self.host);
        Ok(Plugin::new(PluginParts {
            host,
            manifest,
            digest,
            origin,
            is_built_in,
            component,
            line,
            finding,
            joined,
            taping,
        }))
    }

    /// The result of the contract check, from the cache if the same bytes were checked before. An
    /// entry for a line that is not served here is checked again, for the error.
    fn finding(
        &self,
        digest: &str,
        component: &[u8],
    ) -> Result<(&'static ContractLine, Finding), ContractError> {
        let cache = self.host.cache.as_ref().ok();
        let known = cache.and_then(|cache| cache.finding(digest));
        let known: Option<Finding> = known.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(finding) = known
            && let Some(line) = finding.line(self.lines)
        {
            return Ok((line, finding));
        }
        let (line, finding) = contract::check(component, self.lines)?;
        if let (Some(cache), Ok(bytes)) = (cache, serde_json::to_vec(&finding)) {
            cache.keep_finding(digest, &bytes);
        }
        Ok((line, finding))
    }
}

/// The head of the recordings of a plugin; that of one call is completed when it is written.
fn recording_head(
    manifest: &Manifest,
    text: &str,
    digest: &str,
    line: &ContractLine,
    grant: &Grant,
) -> RecordingHead {
    RecordingHead {
        cofferdam_recording: FORM,
        plugin: manifest.name.clone(),
        component_sha256: digest.to_owned(),
        contract: line.package(),
        host_version: env!("CARGO_PKG_VERSION").to_owned(),
        request_id: String::new(),
        workspace: String::new(),
        now_ms: 0,
        grant: grant.recorded(),
        manifest: text.to_owned(),
    }
}

/// Logs what is missing, in one line, and what is granted but not requested.
fn report(plugin: &str, joined: &Joined) {
    if !joined.denials.is_empty() {
        let column = |text: fn(&Denial) -> &str, between: &str| {
            joined.denials.iter().map(text).collect::<Vec<_>>().join(between)
        };
        let wanted = column(|denial| &denial.wanted, ", ");
        let lines = column(|denial| &denial.line, "; ");
        tracing::warn!(plugin, wanted, "not granted; to allow it: {lines}");
    }
    for idle in &joined.idle {
        tracing::warn!(plugin, "granted, but its manifest does not ask for it: {idle}");
    }
}

impl Plugins {
    /// The plugin of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Plugin>> {
        self.by_name.get(name)
    }

    /// All plugins, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.by_name.values()
    }
}

/// Chooses one source per name: a plugin of a folder replaces the built-in one if the grant allows
/// it.
fn choose(
    sources: Vec<PluginSource>,
    grants: &BTreeMap<String, OperatorGrant>,
) -> Result<BTreeMap<String, (Manifest, PluginSource)>, LoadError> {
    let mut chosen: BTreeMap<String, (Manifest, PluginSource)> = BTreeMap::new();
    let mut replaced = BTreeSet::new();
    for source in sources {
        let manifest = checked_manifest(&source)?;
        let name = manifest.name.clone();
        if let Some((_, earlier)) = chosen.get(&name) {
            let may_replace = grants.get(&name).is_some_and(|grant| grant.replaces);
            if !earlier.is_built_in || source.is_built_in {
                let first = earlier.origin.clone();
                let origin = source.origin;
                return Err(LoadError::Duplicate { origin, what: "name", id: name, first });
            }
            if !may_replace {
                return Err(LoadError::BuiltIn { origin: source.origin, name });
            }
            replaced.insert(name.clone());
        }
        chosen.insert(name, (manifest, source));
    }
    for (plugin, _) in grants.iter().filter(|(name, grant)| grant.replaces && !replaced.contains(*name)) {
        tracing::warn!(plugin, "`replaces` is set, and no plugin of the folder has this name");
    }
    Ok(chosen)
}
