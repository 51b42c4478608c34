//! A loaded plugin: manifest, component, grant, and the compiled form once it was needed.

mod functions;
mod variant;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::{Mutex, OwnedMutexGuard};
use wasmtime::component::{Component, InstancePre};

use crate::code::Code;
use crate::context::CallContext;
use crate::contract::{ContractLine, Export, Finding};
use crate::counters::Counters;
use crate::error::{CallError, CallErrorKind};
use crate::grant::{Compile, Denial, Grant, Joined};
use crate::guest::GuestState;
use crate::host::{Host, LoadedCode};
use crate::imports;
use crate::manifest::{Import, Manifest, PluginKind};
use crate::profile::Profile;
use crate::services::Services;
use crate::tape::{CallRecorder, RecordingPlan, Tape};

pub(crate) use functions::Functions;

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
    line: &'static ContractLine,
    finding: Finding,
    denials: Vec<Denial>,
    idle: Vec<String>,
    taping: Taping,
    /// Held while compiling: other callers wait for the result instead of compiling again.
    compiling: Arc<Mutex<()>>,
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
    pub(crate) line: &'static ContractLine,
    pub(crate) finding: Finding,
    pub(crate) joined: Joined,
    pub(crate) taping: Taping,
}

/// Whether failing calls of a plugin are recorded, or one call is replayed.
pub(crate) enum Taping {
    Off,
    Record(Arc<RecordingPlan>),
    Replay(Arc<Tape>),
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
    pub(crate) functions: Functions,
    from_cache: bool,
    ms: u64,
    code: LoadedCode,
}

struct CompileFailed {
    kind: CallErrorKind,
    reason: String,
}

impl Plugin {
    pub(crate) fn new(parts: PluginParts) -> Self {
        let PluginParts {
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
        } = parts;
        let Joined { grant, denials, idle } = joined;
        Self {
            number: host.next_number(),
            profile: Arc::new(Profile { counters: host.counters.of(&manifest.name), grant, manifest }),
            host,
            digest,
            origin,
            is_built_in,
            component,
            line,
            finding,
            denials,
            idle,
            taping,
            compiling: Arc::default(),
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

    /// The line of the contract that its component is built for.
    #[must_use]
    pub fn line(&self) -> &'static ContractLine {
        self.line
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

    /// Totals of calls and errors of the plugins of this name since the start of the process.
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
        Some(self.compiled_now()?.code.bytes())
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

    /// Whether its calls are recorded or replayed. Such a call has an instance of its own.
    pub(crate) fn is_taped(&self) -> bool {
        !matches!(self.taping, Taping::Off)
    }

    /// Logs that failing calls are recorded, if they are: recordings hold content.
    pub(crate) fn tell_recording(&self) {
        if let Taping::Record(plan) = &self.taping {
            let (plugin, kept, directory) = (self.name(), plan.kept, plan.recorder.directory().display());
            tracing::warn!(plugin, kept, %directory, "failing calls of this plugin are recorded, with their content");
        }
    }

    /// The tape of a new call.
    pub(crate) fn tape(&self, context: &CallContext, services: &Services) -> Option<Arc<Tape>> {
        match &self.taping {
            Taping::Off => None,
            Taping::Record(plan) => Some(Arc::new(Tape::Record(CallRecorder::new(plan, context, services)))),
            Taping::Replay(tape) => Some(Arc::clone(tape)),
        }
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
        let turn = Arc::clone(&self.compiling).lock_owned().await;
        let cached = tokio::task::spawn_blocking(move || plugin.fill_cache(turn)).await;
        if matches!(cached, Ok(true)) { Ok(()) } else { self.compile().await }
    }

    /// Compiles the plugin into the cache, if it is not there. False if it is not there afterwards.
    fn fill_cache(&self, _turn: OwnedMutexGuard<()>) -> bool {
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
            // Other calls wait without a thread of their own.
            let turn = Arc::clone(&self.compiling).lock_owned().await;
            self.compile_in_turn(turn).await?;
        }
        match self.compiled.get() {
            Some(Ok(compiled)) => Ok(compiled),
            Some(Err(failed)) => Err(CallError::new(self.name(), failed.kind.clone())),
            None => Err(CallError::new(self.name(), CallErrorKind::Compile)),
        }
    }

    async fn compile_in_turn(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> Result<(), CallError> {
        if self.compiled.get().is_some() {
            return Ok(());
        }
        let plugin = Arc::clone(self);
        // The task is independent of this call: if the client leaves, the result still serves the next
        // request.
        let done = tokio::task::spawn_blocking(move || plugin.compile_once(turn)).await;
        done.map_err(|_| CallError::new(self.name(), CallErrorKind::Compile))
    }

    /// The compiled form. Always present for instances, which are made from it.
    pub(crate) fn compiled_now(&self) -> Option<&Compiled> {
        self.compiled.get()?.as_ref().ok()
    }

    fn compile_once(&self, _turn: OwnedMutexGuard<()>) {
        let made = self.make();
        match &made {
            Ok(compiled) => {
                self.host.keep_loaded(&self.digest, &compiled.code);
                self.report_compiled(compiled.from_cache, compiled.ms);
            }
            Err(failed) => tracing::error!(plugin = self.name(), reason = failed.reason, "plugin unusable"),
        }
        // Cannot fail: the holder of the turn is the only writer.
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
        let (code, from_cache) = self.code()?;
        let linker = imports::linker(&self.host.engine, &self.profile.grant, self.line).map_err(unusable)?;
        let pre = linker.instantiate_pre(&code.component).map_err(unusable)?;
        let functions = Functions::of(&code.component, self.line);
        Ok(Compiled { pre, functions, from_cache, ms: millis_since(started), code })
    }

    fn ungranted_imports(&self) -> impl Iterator<Item = Import> {
        let grant = &self.profile.grant;
        self.finding
            .used()
            .into_iter()
            .filter(|import| !grant.linked_imports().any(|linked| linked == *import))
    }

    /// The native code, and whether nothing was compiled for it.
    fn code(&self) -> Result<(LoadedCode, bool), CompileFailed> {
        if let Some(code) = self.host.loaded(&self.digest) {
            return Ok((code, true));
        }
        let (component, from_cache) = self.read_or_compile()?;
        Ok((self.host.count_code(component), from_cache))
    }

    fn read_or_compile(&self) -> Result<(Component, bool), CompileFailed> {
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
