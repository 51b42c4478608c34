//! A plugin as the host knows it: manifest, component, grant, and its compiled
//! form once somebody needed it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

use crate::bindings::exports::cofferdam::plugin as exports;
use crate::contract::{Export, Finding};
use crate::counters::Counters;
use crate::error::{CallError, CallErrorKind};
use crate::grant::{Denial, Grant, Joined};
use crate::host::Host;
use crate::imports;
use crate::instance::GuestState;
use crate::manifest::{Import, Kind, Manifest};

/// One installed plugin.
pub struct Plugin {
    pub(crate) host: Arc<Host>,
    profile: Arc<Profile>,
    /// Tells this plugin from every other this runtime ever loaded, an earlier
    /// one of the same name included.
    number: u64,
    digest: String,
    origin: String,
    is_built_in: bool,
    component: Cow<'static, [u8]>,
    finding: Finding,
    denials: Vec<Denial>,
    idle: Vec<String>,
    /// One compilation at a time; the others wait for its result.
    compiling: Mutex<()>,
    compiled: OnceLock<Result<Compiled, Failed>>,
}

/// What an instance knows of its plugin. Instances that wait for their next call
/// hold this and not the plugin, which takes them along when it goes.
pub(crate) struct Profile {
    pub(crate) grant: Grant,
    pub(crate) manifest: Manifest,
    pub(crate) counters: Counters,
}

/// What a plugin is made of, when it is loaded.
pub(crate) struct Parts {
    pub(crate) host: Arc<Host>,
    pub(crate) manifest: Manifest,
    pub(crate) digest: String,
    pub(crate) origin: String,
    pub(crate) is_built_in: bool,
    pub(crate) component: Cow<'static, [u8]>,
    pub(crate) finding: Finding,
    pub(crate) joined: Joined,
}

/// How far a plugin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginState {
    /// Nobody needed it yet.
    NotCompiled,
    /// Ready to be called.
    Compiled {
        /// Whether the compiled form came from the cache.
        from_cache: bool,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// It will not work; the reason is for the operator.
    Failed(String),
}

/// The compiled form with everything looked up by name that has a name.
pub(crate) struct Compiled {
    pub(crate) pre: InstancePre<GuestState>,
    pub(crate) routing: Option<exports::routing::GuestIndices>,
    pub(crate) model_choice: Option<exports::model_choice::GuestIndices>,
    pub(crate) dialect: Option<exports::dialect::GuestIndices>,
    pub(crate) generation: Option<exports::generation::GuestIndices>,
    pub(crate) on_request: Option<exports::on_request::GuestIndices>,
    pub(crate) on_response: Option<exports::on_response::GuestIndices>,
    pub(crate) tools: Option<exports::tools::GuestIndices>,
    pub(crate) functions: Functions,
    from_cache: bool,
    ms: u64,
}

/// Functions that are called without the generated bindings, which would want
/// owned bytes where a borrowed body is to be copied once, into the guest.
pub(crate) struct Functions {
    pub(crate) prepare: Option<ComponentExportIndex>,
    pub(crate) map_error: Option<ComponentExportIndex>,
    pub(crate) prepare_embeddings: Option<ComponentExportIndex>,
    pub(crate) decode_embeddings: Option<ComponentExportIndex>,
    pub(crate) on_request: Option<ComponentExportIndex>,
    pub(crate) on_response: Option<ComponentExportIndex>,
    pub(crate) tool_functions: Option<ComponentExportIndex>,
    pub(crate) invoke_tool: Option<ComponentExportIndex>,
}

impl Functions {
    /// The version in the names of the contract's interfaces. Components built
    /// against a compatible one are found under it too.
    const VERSION: &str = "0.1.0";

    fn of(component: &Component) -> Self {
        let find = |interface: &str, function: &str| {
            let name = format!("cofferdam:plugin/{interface}@{}", Self::VERSION);
            let interface = component.get_export_index(None, &name)?;
            component.get_export_index(Some(&interface), function)
        };
        Self {
            prepare: find("generation", "prepare"),
            map_error: find("dialect", "map-error"),
            prepare_embeddings: find("embedding", "prepare"),
            decode_embeddings: find("embedding", "decode"),
            on_request: find("on-request", "handle"),
            on_response: find("on-response", "handle"),
            tool_functions: find("tools", "functions"),
            invoke_tool: find("tools", "invoke"),
        }
    }
}

struct Failed {
    kind: CallErrorKind,
    reason: String,
}

impl Plugin {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { host, manifest, digest, origin, is_built_in, component, finding, joined } = parts;
        let Joined { grant, denials, idle } = joined;
        Self {
            number: host.next_number(),
            host,
            profile: Arc::new(Profile { grant, manifest, counters: Counters::default() }),
            digest,
            origin,
            is_built_in,
            component,
            finding,
            denials,
            idle,
            compiling: Mutex::new(()),
            compiled: OnceLock::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.profile.name()
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.profile.manifest.kind
    }

    /// Its manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.profile.manifest
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Where it came from, for messages.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it is part of the program.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.is_built_in
    }

    /// What it may do.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.profile.grant
    }

    /// What it wants and does not get, each with the line that would allow it.
    #[must_use]
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// What the operator grants and its manifest does not ask for.
    #[must_use]
    pub fn idle_grants(&self) -> &[String] {
        &self.idle
    }

    /// Whether everything the component cannot do without is granted. One that is not
    /// usable is, to clients, not there; [`Plugin::missing_grants`] tells operators why.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.ungranted_imports().next().is_none()
    }

    /// What it cannot run without and was not granted.
    #[must_use]
    pub fn missing_grants(&self) -> Vec<Denial> {
        self.grant().denials_of(&self.ungranted_imports().collect())
    }

    /// What it cannot run without, and the lines that would grant it; `None` for one that is usable.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let missing: Vec<&str> = self.ungranted_imports().map(Import::as_str).collect();
        if missing.is_empty() {
            return None;
        }
        let lines: Vec<String> = self.missing_grants().into_iter().map(|denial| denial.line).collect();
        Some(format!("lacks grants: {}; to allow it: {}", missing.join(", "), lines.join("; ")))
    }

    /// Its running totals.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.profile.counters
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self) -> PluginState {
        match self.compiled.get() {
            None => PluginState::NotCompiled,
            Some(Ok(compiled)) => PluginState::Compiled { from_cache: compiled.from_cache, ms: compiled.ms },
            Some(Err(failed)) => PluginState::Failed(failed.reason.clone()),
        }
    }

    pub(crate) fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether its instances may serve more than one call. Only pure guests, which
    /// import nothing but log and config: what hooks and tools have seen of one
    /// request, through doors that were opened for it, ends with that request.
    pub(crate) fn is_pure(&self) -> bool {
        matches!(self.kind(), Kind::Router | Kind::Provider) && self.finding.imports.is_empty()
    }

    /// Whether it is a provider for responses.
    #[must_use]
    pub fn exports_generation(&self) -> bool {
        self.finding.exports.contains(&Export::Generation)
    }

    /// Whether it is a provider for embeddings.
    #[must_use]
    pub fn exports_embedding(&self) -> bool {
        self.finding.exports.contains(&Export::Embedding)
    }

    /// Whether it chooses models.
    #[must_use]
    pub fn exports_model_choice(&self) -> bool {
        self.finding.exports.contains(&Export::ModelChoice)
    }

    /// Compiles it, or waits until somebody else has; does nothing when it is
    /// compiled. Runs on the blocking threads.
    ///
    /// # Errors
    ///
    /// It lacks a grant, or does not compile; the reason goes to the log once.
    pub async fn compile(self: &Arc<Self>) -> Result<(), CallError> {
        self.compiled().await.map(|_| ())
    }

    pub(crate) async fn compiled(self: &Arc<Self>) -> Result<&Compiled, CallError> {
        if self.compiled.get().is_none() {
            let plugin = Arc::clone(self);
            // The task is not bound to this call: should the client go away, the
            // work is still of use to the next.
            let done = tokio::task::spawn_blocking(move || plugin.compile_once()).await;
            if done.is_err() {
                return Err(CallError::new(self.name(), CallErrorKind::Compile));
            }
        }
        match self.compiled.get() {
            Some(Ok(compiled)) => Ok(compiled),
            Some(Err(failed)) => Err(CallError::new(self.name(), failed.kind.clone())),
            None => Err(CallError::new(self.name(), CallErrorKind::Compile)),
        }
    }

    /// The compiled form, for instances: they exist only after it does.
    pub(crate) fn compiled_now(&self) -> Option<&Compiled> {
        self.compiled.get()?.as_ref().ok()
    }

    fn compile_once(&self) {
        let _one = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.compiled.get().is_some() {
            return;
        }
        let made = self.make();
        match &made {
            Ok(compiled) => tracing::info!(
                plugin = self.name(),
                from_cache = compiled.from_cache,
                duration_ms = compiled.ms,
                "plugin compiled"
            ),
            Err(failed) => tracing::error!(plugin = self.name(), reason = failed.reason, "plugin unusable"),
        }
        // The lock above makes this the only writer.
        drop(self.compiled.set(made));
    }

    fn make(&self) -> Result<Compiled, Failed> {
        if let Some(reason) = self.lacks() {
            return Err(Failed { kind: CallErrorKind::Denied, reason });
        }
        let started = Instant::now();
        let (component, from_cache) = self.component()?;
        let linker = imports::linker(&self.host.engine, &self.profile.grant).map_err(unusable)?;
        let pre = linker.instantiate_pre(&component).map_err(unusable)?;
        let mut compiled = self.look_up(pre).map_err(unusable)?;
        compiled.from_cache = from_cache;
        compiled.ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(compiled)
    }

    fn ungranted_imports(&self) -> impl Iterator<Item = Import> {
        let grant = &self.profile.grant;
        self.finding
            .used()
            .into_iter()
            .filter(|import| !grant.linked_imports().any(|linked| linked == *import))
    }

    fn component(&self) -> Result<(Component, bool), Failed> {
        let engine = &self.host.engine;
        let cache = self.host.cache.as_ref();
        if let Some(component) = cache.and_then(|cache| cache.component(engine, &self.digest)) {
            return Ok((component, true));
        }
        let component = Component::new(engine, &self.component).map_err(unusable)?;
        if let Some(cache) = cache {
            cache.keep_component(&self.digest, &component);
        }
        Ok((component, false))
    }

    fn look_up(&self, pre: InstancePre<GuestState>) -> wasmtime::Result<Compiled> {
        let has = |export| self.finding.exports.contains(&export);
        Ok(Compiled {
            routing: has(Export::Routing).then(|| exports::routing::GuestIndices::new(&pre)).transpose()?,
            model_choice: has(Export::ModelChoice)
                .then(|| exports::model_choice::GuestIndices::new(&pre))
                .transpose()?,
            dialect: has(Export::Dialect).then(|| exports::dialect::GuestIndices::new(&pre)).transpose()?,
            generation: has(Export::Generation)
                .then(|| exports::generation::GuestIndices::new(&pre))
                .transpose()?,
            on_request: has(Export::OnRequest)
                .then(|| exports::on_request::GuestIndices::new(&pre))
                .transpose()?,
            on_response: has(Export::OnResponse)
                .then(|| exports::on_response::GuestIndices::new(&pre))
                .transpose()?,
            tools: has(Export::Tools).then(|| exports::tools::GuestIndices::new(&pre)).transpose()?,
            functions: Functions::of(pre.component()),
            from_cache: false,
            ms: 0,
            pre,
        })
    }

    pub(crate) fn missing(&self, export: &'static str) -> CallError {
        self.failed(CallErrorKind::NotExported(export))
    }

    /// Counts a failed call and makes its error.
    pub(crate) fn failed(&self, kind: CallErrorKind) -> CallError {
        self.profile.counters.failed(&kind);
        CallError::new(self.name(), kind)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.host.warm.forget(self.number);
    }
}

impl Profile {
    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }
}

fn unusable(error: wasmtime::Error) -> Failed {
    let reason: String = format!("{error:#}").lines().next().unwrap_or_default().chars().take(400).collect();
    Failed { kind: CallErrorKind::Compile, reason }
}
