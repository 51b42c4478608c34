//! A loaded plugin: manifest, component, grant, and the compiled form once it was needed.

mod variant;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

use crate::bindings::exports::cofferdam::plugin as exports;
use crate::code::Code;
use crate::contract::{Export, Finding};
use crate::counters::Counters;
use crate::error::{CallError, CallErrorKind};
use crate::grant::{Compile, Denial, Grant, Joined};
use crate::guest::GuestState;
use crate::host::Host;
use crate::imports;
use crate::manifest::{Import, Manifest, PluginKind};
use crate::profile::Profile;

/// Compiling for at least this long is worth a hint, in milliseconds.
const SLOW_COMPILE_MS: u64 = 2_000;

/// One installed plugin.
pub struct Plugin {
    pub(crate) host: Arc<Host>,
    profile: Arc<Profile>,
    /// Unique among all plugins that this runtime ever loaded, earlier versions of this one
    /// included.
    number: u64,
    digest: String,
    origin: String,
    is_built_in: bool,
    component: Cow<'static, [u8]>,
    finding: Finding,
    denials: Vec<Denial>,
    idle: Vec<String>,
    /// Held while compiling: other callers wait for the result instead of compiling again.
    compiling: Mutex<()>,
    compiled: OnceLock<Result<Compiled, CompileFailed>>,
    /// The compile cache has its compiled form, which is not in memory yet.
    is_cached: AtomicBool,
}

/// The parts of a new [`Plugin`].
pub(crate) struct PluginParts {
    pub(crate) host: Arc<Host>,
    pub(crate) manifest: Manifest,
    pub(crate) digest: String,
    pub(crate) origin: String,
    pub(crate) is_built_in: bool,
    pub(crate) component: Cow<'static, [u8]>,
    pub(crate) finding: Finding,
    pub(crate) joined: Joined,
}

/// Whether a plugin is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginState {
    /// It was not needed yet.
    NotCompiled,
    /// Compiled, and loaded from the compile cache when it is first called.
    Cached,
    /// Ready to be called.
    Compiled {
        /// Whether the compiled form came from the compile cache.
        from_cache: bool,
        /// Time to compile or load it, in milliseconds.
        ms: u64,
    },
    /// It cannot be used. The reason is for the operator.
    Failed(String),
}

/// The compiled form, with its exports looked up.
#[derive(Clone)]
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

/// Functions that are called without the generated bindings. Those take owned bytes; these calls
/// copy a borrowed body directly into the guest.
#[derive(Clone)]
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
    /// Version in the names of the contract's interfaces. Components that were built against
    /// another compatible version are found under it too.
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

struct CompileFailed {
    kind: CallErrorKind,
    reason: String,
}

impl Plugin {
    pub(crate) fn new(parts: PluginParts) -> Self {
        let PluginParts { host, manifest, digest, origin, is_built_in, component, finding, joined } = parts;
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
            is_cached: AtomicBool::new(false),
        }
    }

    /// The name in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        self.profile.name()
    }

    /// The kind in the manifest.
    #[must_use]
    pub fn kind(&self) -> PluginKind {
        self.profile.manifest.kind
    }

    /// The checked manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.profile.manifest
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Where the plugin was loaded from, for messages: a path, or `embedded`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether the plugin is part of the program.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.is_built_in
    }

    /// The effective grant: requested by the manifest and allowed by the operator.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.profile.grant
    }

    /// What the plugin requests without being granted it, each with the configuration line that
    /// would grant it.
    #[must_use]
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// What the operator grants although the manifest does not request it.
    #[must_use]
    pub fn idle_grants(&self) -> &[String] {
        &self.idle
    }

    /// Whether every import that the component requires is granted. For clients a plugin that is
    /// not usable does not exist; [`Plugin::missing_grants`] explains it to operators.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.ungranted_imports().next().is_none()
    }

    /// The imports that it requires and was not granted.
    #[must_use]
    pub fn missing_grants(&self) -> Vec<Denial> {
        self.grant().denials_of(&self.ungranted_imports().collect())
    }

    /// The imports that it requires and was not granted, and the lines that would grant them, as
    /// one text. `None` if the plugin is usable.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let missing: Vec<&str> = self.ungranted_imports().map(Import::as_str).collect();
        if missing.is_empty() {
            return None;
        }
        let lines: Vec<String> = self.missing_grants().into_iter().map(|denial| denial.line).collect();
        Some(format!("lacks grants: {}; to allow it: {}", missing.join(", "), lines.join("; ")))
    }

    /// Totals of calls and errors since the plugin was loaded.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.profile.counters
    }

    /// Whether it is compiled, and how that went.
    #[must_use]
    pub fn state(&self) -> PluginState {
        match self.compiled.get() {
            None if self.is_cached.load(Ordering::Relaxed) => PluginState::Cached,
            None => PluginState::NotCompiled,
            Some(Ok(compiled)) => PluginState::Compiled { from_cache: compiled.from_cache, ms: compiled.ms },
            Some(Err(failed)) => PluginState::Failed(failed.reason.clone()),
        }
    }

    /// Size of its compiled code in bytes, once it is compiled.
    #[must_use]
    pub fn code_bytes(&self) -> Option<usize> {
        let image = self.compiled_now()?.pre.component().image_range();
        Some(image.end.addr().saturating_sub(image.start.addr()))
    }

    pub(crate) fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether its instances may serve more than one call. True only for pure guests, which import
    /// nothing but log and config. Hooks and tools get capabilities and content of one request;
    /// that must end with the request.
    pub(crate) fn is_pure(&self) -> bool {
        matches!(self.kind(), PluginKind::Router | PluginKind::Provider) && self.finding.imports.is_empty()
    }

    /// Whether it is a provider that serves responses.
    #[must_use]
    pub fn exports_generation(&self) -> bool {
        self.finding.exports.contains(&Export::Generation)
    }

    /// Whether it is a provider that serves embeddings.
    #[must_use]
    pub fn exports_embedding(&self) -> bool {
        self.finding.exports.contains(&Export::Embedding)
    }

    /// Whether it is a model router: a router that also chooses models.
    #[must_use]
    pub fn exports_model_choice(&self) -> bool {
        self.finding.exports.contains(&Export::ModelChoice)
    }

    /// Compiles the plugin, or waits for a compilation in progress. Does nothing if it is compiled.
    /// Runs on a blocking thread.
    ///
    /// # Errors
    ///
    /// A required grant is missing, or the component does not compile. The reason is logged once.
    pub async fn compile(self: &Arc<Self>) -> Result<(), CallError> {
        self.compiled().await.map(|_| ())
    }

    /// Makes sure that the first call has to compile nothing: compiles the plugin into the compile
    /// cache, from which that call loads it. So a plugin that is never called takes no memory.
    /// Without a cache the compiled form stays in memory. Runs on a blocking thread.
    ///
    /// # Errors
    ///
    /// Same as [`Plugin::compile`].
    pub async fn compile_ahead(self: &Arc<Self>) -> Result<(), CallError> {
        if self.compiled.get().is_some() || self.is_cached.load(Ordering::Relaxed) {
            return Ok(());
        }
        let plugin = Arc::clone(self);
        let cached = tokio::task::spawn_blocking(move || plugin.fill_cache()).await;
        if matches!(cached, Ok(true)) { Ok(()) } else { self.compile().await }
    }

    /// Compiles the plugin into the cache, if it is not there. False if it is not there afterwards.
    fn fill_cache(&self) -> bool {
        let _one = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cache) = self.host.cache.as_ref().ok().filter(|_| self.compiled.get().is_none()) else {
            return false;
        };
        let started = Instant::now();
        let mut is_cached = cache.has_code(&self.digest);
        if is_cached {
            self.report_compiled(true, millis_since(started));
        } else if let Ok(compiled) = self.make() {
            self.report_compiled(compiled.from_cache, compiled.ms);
            is_cached = cache.has_code(&self.digest);
        }
        self.is_cached.store(is_cached, Ordering::Relaxed);
        is_cached
    }

    pub(crate) async fn compiled(self: &Arc<Self>) -> Result<&Compiled, CallError> {
        if self.compiled.get().is_none() {
            let plugin = Arc::clone(self);
            // The task is independent of this call: if the client leaves, the result still serves
            // the next request.
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

    /// The compiled form. Always present for instances, which are made from it.
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
            Ok(compiled) => self.report_compiled(compiled.from_cache, compiled.ms),
            Err(failed) => tracing::error!(plugin = self.name(), reason = failed.reason, "plugin unusable"),
        }
        // Cannot fail: the lock above makes this the only writer.
        drop(self.compiled.set(made));
    }

    fn report_compiled(&self, from_cache: bool, duration_ms: u64) {
        let plugin = self.name();
        tracing::info!(plugin, from_cache, duration_ms, "plugin compiled");
        let in_background = self.grant().compile == Compile::Background;
        if in_background && !from_cache && duration_ms >= SLOW_COMPILE_MS {
            tracing::info!(
                plugin,
                duration_ms,
                "calls that came while it was compiled have waited; to be ready only after that: \
                 [plugins.{plugin}] compile = \"start\""
            );
        }
    }

    fn make(&self) -> Result<Compiled, CompileFailed> {
        if let Some(reason) = self.lacks() {
            return Err(CompileFailed { kind: CallErrorKind::Denied, reason });
        }
        let started = Instant::now();
        let (component, from_cache) = self.component()?;
        let linker = imports::linker(&self.host.engine, &self.profile.grant).map_err(unusable)?;
        let pre = linker.instantiate_pre(&component).map_err(unusable)?;
        let mut compiled = self.look_up(pre).map_err(unusable)?;
        compiled.from_cache = from_cache;
        compiled.ms = millis_since(started);
        Ok(compiled)
    }

    fn ungranted_imports(&self) -> impl Iterator<Item = Import> {
        let grant = &self.profile.grant;
        self.finding
            .used()
            .into_iter()
            .filter(|import| !grant.linked_imports().any(|linked| linked == *import))
    }

    fn component(&self) -> Result<(Component, bool), CompileFailed> {
        let engine = &self.host.engine;
        let cache = self.host.cache.as_ref().ok();
        let cached = cache.and_then(|cache| cache.code(&self.digest)).map(|code| code.load(engine));
        match cached {
            Some(Ok(component)) => return Ok((component, true)),
            Some(Err(error)) => tracing::debug!(%error, "a cached component does not load"),
            None => {}
        }
        let code = Code::compile(&self.component, self.host.meter.is_some()).map_err(unusable)?;
        if let Some(cache) = cache {
            cache.keep_code(&self.digest, &code);
        }
        Ok((code.load(engine).map_err(unusable)?, false))
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

    /// Counts a failed call and returns its error.
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

fn millis_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn unusable(error: wasmtime::Error) -> CompileFailed {
    let reason: String = format!("{error:#}").lines().next().unwrap_or_default().chars().take(400).collect();
    CompileFailed { kind: CallErrorKind::Compile, reason }
}
