//! Native code of a component: compiled here, or read from the compile cache.

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::engine::settings;
use crate::schedule::processors;

/// Native code that this host compiled itself. Loading it requires complete trust in its bytes.
pub(crate) struct Code(Vec<u8>);

impl Code {
    /// Compiles a component, with an engine and threads that end afterwards. An engine keeps the
    /// memory of its largest compilations, and the allocator keeps for each thread what that thread
    /// used: together 60 MiB after the plugins of the program. Metered code counts its fuel.
    ///
    /// # Errors
    ///
    /// The component is not valid, or the machine cannot run the sandbox.
    pub(crate) fn compile(component: &[u8], metered: bool) -> wasmtime::Result<Self> {
        let engine = Engine::new(settings(None).consume_fuel(metered))?;
        let threads = rayon::ThreadPoolBuilder::new().num_threads(processors());
        let code = match threads.thread_name(|_| "compile".to_owned()).build() {
            Ok(threads) => threads.install(|| engine.precompile_component(component)),
            // Without more threads it is compiled on this one.
            Err(_) => engine.precompile_component(component),
        };
        code.map(Self)
    }

    /// Bytes of [`Self::bytes`] that were kept where only this host can write, or under its seal.
    pub(crate) fn trusted(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The code, ready to be instantiated by `engine`.
    ///
    /// # Errors
    ///
    /// It was compiled for other settings or by another version of wasmtime.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        #[expect(unsafe_code, reason = "loading native code that this host compiled itself")]
        // SAFETY: `deserialize` is sound for bytes that `precompile_component` produced. Values of
        // this type hold no others.
        unsafe {
            Component::deserialize(engine, &self.0)
        }
    }
}
