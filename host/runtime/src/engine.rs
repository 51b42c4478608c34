//! The wasmtime engine of the process: which WebAssembly features it accepts, how many instances it
//! has room for, and the thread that interrupts guests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy,
};

use crate::error::StartError;
#[cfg(debug_assertions)]
use crate::guest_memory::{BeforePool, GuestMemories};
use crate::limits::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use crate::manifest::MEMORY_MIB_MAX;
use crate::permits::TickedInstance;
use crate::warm::Warm;

/// Instances in addition to one per stream, for the routers, hooks and tools of the same requests.
const INSTANCES_BESIDE_STREAMS: u32 = 64;
/// Interpreters that fit into the pool beside instances of ordinary components. They have more core
/// instances, memories and tables.
const INTERPRETERS: u32 = 64;
/// Core instances of one ordinary component: main module, adapters and shims.
const CORE_INSTANCES_ORDINARY: u32 = 4;
/// Memories and tables of an interpreter beyond those of an ordinary component.
const MEMORIES_OF_INTERPRETER: u32 = 3;
/// Limit of wasmtime's metadata for one core instance or component instance, in bytes. An
/// interpreter has a thousand times the functions of an ordinary component.
const INSTANCE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Stack of a guest. It is a part of the native stack, which leaves 1.5 MiB for host functions.
const WASM_STACK_BYTES: usize = 512 * 1024;
const NATIVE_STACK_BYTES: usize = 2 * 1024 * 1024;
/// Memory that a free slot of the pool keeps resident, so that a small guest takes no page faults
/// for it. Needs the kernel to report dirty pages; otherwise slots keep nothing.
const KEEP_MEMORY_BYTES: usize = 512 * 1024;
const KEEP_TABLE_BYTES: usize = 16 * 1024;
/// Free slots that stay prepared for a component. Beyond them, another component takes the slot that was
/// unused for longest, so that the pool does not come to hold memory in each of its slots.
const PREPARED_SLOTS: u32 = 32;
/// The smallest size of a pool. If not even this fits, memory is allocated per instance.
const POOL_MIN: u32 = 16;

/// The engine and how many instances it can hold.
pub(crate) struct Sandbox {
    pub(crate) engine: Engine,
    /// Number of instances that can exist at the same time.
    pub(crate) instances: u32,
    /// Number of instances that the settings ask for.
    pub(crate) wanted: u32,
    /// Whether instances come from a pool.
    pub(crate) pooled: bool,
    /// Whether the fuel of guests is counted.
    pub(crate) metered: bool,
    /// Present where tests search the memory of guests.
    #[cfg(debug_assertions)]
    pub(crate) memories: Option<GuestMemories>,
}

impl Sandbox {
    /// Creates an engine with room for `streams` streams and the other instances of their requests.
    /// If the address space is too small, it tries smaller pools and finally no pool.
    pub(crate) fn start(streams: usize) -> Result<Self, StartError> {
        let wanted = u32::try_from(streams).unwrap_or(u32::MAX).saturating_add(INSTANCES_BESIDE_STREAMS);
        let mut instances = wanted;
        #[cfg(debug_assertions)]
        let before = BeforePool::note();
        while instances >= POOL_MIN {
            match Engine::new(&settings(Some(instances))) {
                Ok(engine) => {
                    warn_if_small(wanted, instances);
                    return Ok(Self {
                        engine,
                        instances,
                        wanted,
                        pooled: true,
                        metered: false,
                        #[cfg(debug_assertions)]
                        memories: before.and_then(BeforePool::find_pool),
                    });
                }
                Err(error) => tracing::debug!(instances, %error, "no pool of this size"),
            }
            instances /= 2;
        }
        tracing::warn!(wanted, "address space is small: no pool, instances are made one by one");
        let engine = Engine::new(&settings(None)).map_err(|error| StartError::Engine(error.to_string()))?;
        Ok(Self {
            engine,
            instances: wanted,
            wanted,
            pooled: false,
            metered: false,
            #[cfg(debug_assertions)]
            memories: None,
        })
    }

    /// Creates an engine with the smallest pool and the limits of any other, which counts fuel.
    pub(crate) fn start_metered() -> Result<Self, StartError> {
        let mut config = settings(Some(POOL_MIN));
        config.consume_fuel(true);
        let engine = Engine::new(&config).map_err(|error| StartError::Engine(error.to_string()))?;
        Ok(Self {
            engine,
            instances: POOL_MIN,
            wanted: POOL_MIN,
            pooled: true,
            metered: true,
            #[cfg(debug_assertions)]
            memories: None,
        })
    }
}

fn warn_if_small(wanted: u32, instances: u32) {
    if instances < wanted {
        tracing::warn!(wanted, instances, "address space is small: fewer instances at once");
    }
}

/// The settings of every engine. Code is the same for all sizes of the pool.
pub(crate) fn settings(pool: Option<u32>) -> Config {
    let mut config = Config::new();
    config.strategy(Strategy::Cranelift);
    config.cranelift_opt_level(OptLevel::Speed);
    config.parallel_compilation(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(WASM_STACK_BYTES);
    config.async_stack_size(NATIVE_STACK_BYTES);
    config.memory_init_cow(true);
    config.generate_address_map(false);
    config.wasm_component_model(true);
    refuse_features(&mut config);
    if let Some(instances) = pool {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool_of(instances)));
    }
    config
}

/// Turns off features that no guest toolchain needs, to reduce the attack surface. Threads, garbage
/// collection and async components are not compiled in at all.
fn refuse_features(config: &mut Config) {
    config.wasm_memory64(false);
    config.wasm_relaxed_simd(false);
    config.wasm_tail_call(false);
    config.wasm_custom_page_sizes(false);
    config.wasm_wide_arithmetic(false);
    config.wasm_stack_switching(false);
    config.wasm_component_model_error_context(false);
    config.wasm_component_model_gc(false);
    config.wasm_component_model_map(false);
    config.wasm_component_model_memory64(false);
    config.wasm_component_model_fixed_length_lists(false);
    config.shared_memory(false);
}

fn pool_of(instances: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances);
    let more = INTERPRETERS * MEMORIES_OF_INTERPRETER;
    let ordinary = instances.saturating_mul(CORE_INSTANCES_ORDINARY);
    pool.total_core_instances(ordinary.saturating_add(INTERPRETERS * CORE_INSTANCES_MAX));
    pool.total_tables(instances.saturating_mul(2).saturating_add(more));
    pool.total_memories(instances.saturating_add(more));
    pool.total_stacks(instances);
    pool.max_core_instances_per_component(CORE_INSTANCES_MAX);
    pool.max_memories_per_component(MEMORIES_MAX);
    pool.max_tables_per_component(TABLES_MAX);
    pool.max_memories_per_module(MEMORIES_MAX);
    pool.max_tables_per_module(TABLES_MAX);
    pool.max_unused_warm_slots(PREPARED_SLOTS);
    pool.table_elements(TABLE_ELEMENTS_MAX);
    pool.max_memory_size(MEMORY_MIB_MAX as usize * 1024 * 1024);
    pool.max_component_instance_size(INSTANCE_BYTES_MAX);
    pool.max_core_instance_size(INSTANCE_BYTES_MAX);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Auto);
        pool.linear_memory_keep_resident(KEEP_MEMORY_BYTES);
        pool.table_keep_resident(KEEP_TABLE_BYTES);
    }
    pool
}

/// The thread that increments the epoch, which interrupts guests, and ends a few expired idle
/// instances per tick. It does nothing else, so nothing can delay it. It sleeps while there is no
/// instance, so an idle host does not wake the processor. It stops when this value is dropped.
pub(crate) struct Ticker {
    /// Instances that exist, in use or idle.
    instances: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start<T: Send + 'static>(
        engine: &Engine,
        tick: Duration,
        warm: Arc<Warm<T>>,
    ) -> Result<Self, StartError> {
        let (instances, stops) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (engine, counted, stopped) = (engine.clone(), Arc::clone(&instances), Arc::clone(&stops));
        let run = move || {
            run(&stopped, &counted, tick, || {
                engine.increment_epoch();
                warm.expire(Instant::now());
            });
        };
        let thread =
            thread::Builder::new().name("epoch".to_owned()).spawn(run).map_err(StartError::Ticker)?;
        Ok(Self { instances, stops, thread: Some(thread) })
    }

    /// Counts an instance that is about to be made, and wakes the thread for the first one.
    pub(crate) fn begin_instance(&self) -> TickedInstance {
        let (instance, is_first) = TickedInstance::count(&self.instances);
        if is_first {
            self.wake();
        }
        instance
    }

    /// Instances that exist.
    pub(crate) fn instances(&self) -> usize {
        self.instances.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// Ticks until it is stopped.
fn run(stops: &AtomicBool, instances: &AtomicUsize, every: Duration, tick: impl Fn()) {
    while !stops.load(Ordering::Acquire) {
        if wait(instances, every) {
            tick();
        }
    }
}

/// Waits for the next tick, or while there is no instance for the first one. Returns whether a tick is due.
fn wait(instances: &AtomicUsize, every: Duration) -> bool {
    let has_instance = instances.load(Ordering::Relaxed) > 0;
    if has_instance {
        thread::park_timeout(every);
    } else {
        // A wake that comes before this ends it at once.
        thread::park();
    }
    has_instance
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The result does not matter: the thread has ended even if it panicked.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::Store;
    use wasmtime::component::{Component, Linker};

    use super::*;

    #[test]
    fn a_pool_holds_the_streams_and_a_reserve() {
        let sandbox = Sandbox::start(8).unwrap();
        assert_eq!(sandbox.instances, 72);
        assert!(sandbox.pooled);
    }

    #[test]
    fn a_pool_holds_interpreters_beside_ordinary_components() {
        let engine = Sandbox::start(8).unwrap().engine;
        let empty = "(core instance (instantiate $empty))".repeat(CORE_INSTANCES_MAX as usize - 4);
        let full = "(core instance (instantiate $full))".repeat(4);
        let text = format!(
            "(component (core module $empty) (core module $full (memory 1) (table 1 funcref)) {empty} {full})"
        );
        let interpreter = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let text =
            "(component (core module $m (memory 1) (table 1 funcref)) (core instance (instantiate $m)))";
        let ordinary = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let linker = Linker::<()>::new(&engine);
        let start = |component: &Component| {
            let mut store = Store::new(&engine, ());
            store.set_epoch_deadline(1);
            linker.instantiate(&mut store, component).map(|_| store)
        };
        let held: Vec<_> = (0..INTERPRETERS).map(|_| start(&interpreter).unwrap()).collect();
        let beside: Vec<_> = (0..8).map(|_| start(&ordinary).unwrap()).collect();
        assert!(start(&ordinary).is_err(), "the pool is used up");
        drop((held, beside));
    }

    #[test]
    fn a_pool_beyond_the_address_space_shrinks() {
        // 2^20 slots of 4 GiB do not fit into a 64-bit address space of today's processors.
        let sandbox = Sandbox::start(1 << 20).unwrap();
        assert!(sandbox.instances < 1 << 20 || !sandbox.pooled);
    }

    #[test]
    fn refused_features_do_not_compile() {
        let engine = Sandbox::start(1).unwrap().engine;
        let refused = [
            "(component (core module (memory i64 1)))",
            "(component (core module (memory 1 1 shared)))",
            "(component (core module (func (result v128) v128.const i32x4 0 0 0 0 v128.const i32x4 0 0 0 0 \
             v128.const i32x4 0 0 0 0 i32x4.relaxed_dot_i8x16_i7x16_add_s)))",
            "(component (core module (func return_call 0)))",
            "(component (core module (type (struct))))",
            "(component (core module (tag)))",
        ];
        for text in refused {
            let bytes = wat::parse_str(text).unwrap();
            assert!(Component::new(&engine, bytes).is_err(), "{text}");
        }
    }

    #[test]
    fn the_ticker_stops_while_it_waits() {
        let engine = Sandbox::start(1).unwrap().engine;
        let warm = Arc::new(Warm::<()>::new(1, 1));
        // With an instance it waits for the next tick, without one for an instance.
        for has_instance in [true, false] {
            let ticker = Ticker::start(&engine, Duration::from_secs(3600), Arc::clone(&warm)).unwrap();
            let instance = has_instance.then(|| ticker.begin_instance());
            assert_eq!(ticker.instances(), usize::from(has_instance));
            drop(ticker);
            drop(instance);
        }
    }
}
