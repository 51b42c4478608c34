//! From files to plugins: reads manifests and components, checks both, joins
//! requests with grants. Nothing is compiled here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::cache::{Cache, hex};
use crate::contract::{self, COMPONENT_BYTES_MAX, Finding};
use crate::engine::{Sandbox, Ticker};
use crate::error::{LoadError, StartError};
use crate::grant::{Grant, Joined, OperatorGrant};
use crate::host::{Gauges, Host, Places};
use crate::manifest::Manifest;
use crate::plugin::{Parts, Plugin};
use crate::warm::Warm;

/// Longest manifest.
const MANIFEST_BYTES_MAX: usize = 64 * 1024;
/// Most plugins in one folder.
const PLUGINS_MAX: usize = 1_000;

/// How the runtime starts.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Responses streamed at once; sizes the room for instances.
    pub streams: usize,
    /// Where compiled components are kept.
    pub cache_dir: PathBuf,
    /// How often a running guest can be interrupted; 2 ms.
    pub tick: Duration,
}

/// The sandbox of the process. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    host: Arc<Host>,
}

/// A plugin before it is checked.
#[derive(Debug, Clone)]
pub struct PluginSource {
    /// The manifest's text.
    pub manifest: String,
    /// The component's bytes.
    pub component: Cow<'static, [u8]>,
    /// Its name as the file says it; must be the manifest's.
    pub name: String,
    /// Names the manifest in messages: a path, or `embedded`.
    pub origin: String,
}

/// The installed plugins by name. Clones share them.
#[derive(Clone)]
pub struct Plugins {
    by_name: Arc<BTreeMap<String, Arc<Plugin>>>,
}

impl Runtime {
    /// Starts the sandbox and its ticker. Does without a cache, and says so in
    /// the log, when the directory cannot be trusted.
    ///
    /// # Errors
    ///
    /// The machine cannot run the sandbox at all.
    pub fn start(config: RuntimeConfig) -> Result<Self, StartError> {
        let sandbox = Sandbox::start(config.streams)?;
        let cache = match Cache::open(&config.cache_dir, &sandbox.engine) {
            Ok(cache) => Some(cache),
            Err(error) => {
                let directory = config.cache_dir.display();
                tracing::warn!(%directory, %error, "no compile cache: every start compiles all plugins");
                None
            }
        };
        let warm = Arc::new(Warm::new(sandbox.instances as usize));
        let ticker = Ticker::start(&sandbox.engine, config.tick, Arc::clone(&warm))?;
        Ok(Self { host: Arc::new(Host::new(sandbox, config.streams, cache, warm, ticker)) })
    }

    /// Checks manifests and components and joins them with the operator's
    /// grants. Later sources replace earlier ones of the same name. Plugins are
    /// compiled when they are first needed, see [`Plugin::compile`].
    ///
    /// # Errors
    ///
    /// The first source that is wrong. Missing grants are no error: they stand
    /// in [`Plugin::denials`] and in the log.
    pub fn load(
        &self,
        sources: Vec<PluginSource>,
        grants: &BTreeMap<String, OperatorGrant>,
    ) -> Result<Plugins, LoadError> {
        let mut chosen = BTreeMap::new();
        for source in sources {
            let manifest = checked_manifest(&source)?;
            chosen.insert(manifest.name.clone(), (manifest, source));
        }
        if let Some(name) = grants.keys().find(|name| !chosen.contains_key(*name)) {
            return Err(LoadError::UnknownPlugin { name: name.clone() });
        }
        let mut by_name = BTreeMap::new();
        for (name, (manifest, source)) in chosen {
            let plugin = self.load_one(manifest, source, grants.get(&name))?;
            by_name.insert(name, Arc::new(plugin));
        }
        Ok(Plugins { by_name: Arc::new(by_name) })
    }

    /// How full the runtime is.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.host.gauges()
    }

    /// The places of the runtime as the owner with this id finds them.
    #[must_use]
    pub fn places(&self, owner: &str) -> Places {
        self.host.places(owner)
    }

    fn load_one(
        &self,
        manifest: Manifest,
        source: PluginSource,
        operator: Option<&OperatorGrant>,
    ) -> Result<Plugin, LoadError> {
        let blame = |error| LoadError::Contract {
            origin: format!("{} ({})", source.origin, manifest.component),
            error,
        };
        let digest = hex(&Sha256::digest(&source.component));
        let finding = self.finding(&digest, &source.component).map_err(blame)?;
        finding.suits(&manifest).map_err(blame)?;
        let nothing = OperatorGrant::default();
        let joined = Grant::join(&manifest, operator.unwrap_or(&nothing), &finding.used());
        // Who has not configured a plugin does not miss it; `plugin list` tells all the same.
        if operator.is_some() {
            report(&manifest.name, &joined);
        }
        let PluginSource { component, origin, .. } = source;
        let host = Arc::clone(&self.host);
        Ok(Plugin::new(Parts { host, manifest, digest, origin, component, finding, joined }))
    }

    /// The contract check, or what it found when it last saw these bytes.
    fn finding(&self, digest: &str, component: &[u8]) -> Result<Finding, crate::error::ContractError> {
        let cache = self.host.cache.as_ref();
        let known = cache.and_then(|cache| cache.finding(digest));
        if let Some(finding) = known.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(finding);
        }
        let finding = contract::check(component)?;
        if let (Some(cache), Ok(bytes)) = (cache, serde_json::to_vec(&finding)) {
            cache.keep_finding(digest, &bytes);
        }
        Ok(finding)
    }
}

/// Tells the log where the two sides of a grant do not meet.
fn report(plugin: &str, joined: &Joined) {
    for denial in &joined.denials {
        tracing::warn!(plugin, wanted = denial.wanted, "not granted; to allow it: {}", denial.line);
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

    /// All plugins, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.by_name.values()
    }
}

/// Reads every `NAME.toml` of a folder with the component it names.
///
/// # Errors
///
/// A file cannot be read, is too long, or a manifest is wrong.
pub fn read_plugin_dir(dir: &Path) -> Result<Vec<PluginSource>, LoadError> {
    let unreadable = |path: &Path, error| LoadError::Read { path: path.to_owned(), error };
    let mut manifests = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| unreadable(dir, error))? {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            manifests.push(path);
        }
        if manifests.len() > PLUGINS_MAX {
            let error = io::Error::other(format!("has more than {PLUGINS_MAX} plugins"));
            return Err(unreadable(dir, error));
        }
    }
    manifests.sort();
    manifests.into_iter().map(|path| read_source(dir, &path)).collect()
}

fn read_source(dir: &Path, path: &Path) -> Result<PluginSource, LoadError> {
    let origin = path.display().to_string();
    let text = read_bounded(path, MANIFEST_BYTES_MAX)?;
    let text = String::from_utf8(text).map_err(|_| LoadError::Read {
        path: path.to_owned(),
        error: io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text"),
    })?;
    let manifest =
        Manifest::parse(&text).map_err(|error| LoadError::Manifest { origin: origin.clone(), error })?;
    let component = read_bounded(&dir.join(&manifest.component), COMPONENT_BYTES_MAX)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(PluginSource { manifest: text, component: component.into(), name, origin })
}

/// Reads a file, but never more than accepted.
fn read_bounded(path: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let read = || {
        let mut bytes = Vec::new();
        let file = fs::File::open(path)?;
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            return Err(io::Error::other(format!(
                "has more than {bytes_max} bytes, which is the most accepted"
            )));
        }
        Ok(bytes)
    };
    read().map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

fn checked_manifest(source: &PluginSource) -> Result<Manifest, LoadError> {
    let blame = |error| LoadError::Manifest { origin: source.origin.clone(), error };
    let manifest = Manifest::parse(&source.manifest).map_err(blame)?;
    if manifest.name == source.name {
        return Ok(manifest);
    }
    let message = format!("`name` is \"{}\", but the file is named \"{}\"", manifest.name, source.name);
    Err(blame(crate::error::ManifestError { line: 1, message }))
}
