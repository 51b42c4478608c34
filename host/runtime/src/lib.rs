//! The WebAssembly sandbox. This crate loads plugins, checks them against the contract in `wit/`,
//! and calls them within limits of time, memory, output and host calls. A misbehaving guest ends
//! its call with a [`CallError`]; the host and all other requests continue.
//!
//! [`Runtime::load`] loads plugins, and the methods of [`Plugin`] call them. One attempt at a
//! provider keeps its [`ProviderInstance`] from `prepare` to the last event. Instances of routers
//! and providers may also serve later calls of the same [`Owner`]; an instance never serves two
//! owners.
//!
//! The modules are listed from loading and calling plugins down to what they share. Each module
//! imports only modules below it.

#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

mod replay;

mod registry;

// For authors of plugins.
mod encoding;
mod inspection;

mod calls;
mod instance;

mod plugin;

mod imports;

mod host;

mod cache;

mod code;

mod engine;
mod warm;

mod meter;

mod contract;

mod guest;

mod logs;
mod profile;

mod tape;

mod recorder;

mod limits;
pub mod memory;

mod account;
mod permits;

mod fairness;

mod context;

mod clock;
mod inputs;
mod owner;

pub mod services;

mod grant;

pub mod manifest;

mod injection;

#[cfg(debug_assertions)]
mod guest_memory;

mod recording;

mod counters;

pub mod wire;

mod bindings;

mod error;
mod schedule;
mod text;

pub use calls::provider::ProviderInstance;
pub use calls::router::ChoiceQuestion;
pub use context::CallContext;
pub use contract::{COMPONENT_BYTES_MAX, ContractLine};
pub use counters::{CounterValues, Counters, HookAction};
pub use encoding::{EncodingError, component_of, is_core_module};
pub use error::{
    CallError, CallErrorKind, ContractError, Distrust, LoadError, ManifestError, StartError, TrapKind,
};
pub use fairness::{Fairness, Holders};
pub use grant::{
    Compile, Denial, Grant, HostGrant, OnReflection, OperatorGrant, SecretPlan, SecretSource, UnsentRequest,
    missing_grants,
};
pub use host::Gauges;
pub use injection::{InjectionError, InjectionRule, WrittenInjection, is_injectable_header};
pub use inputs::{FixedInputs, GuestInputs};
pub use inspection::{Fit, Inspection, SandboxNeeds};
pub use manifest::{Asked, Manifest, PluginKind};
pub use meter::MeteredCall;
pub use owner::Owner;
pub use permits::InstancePermits;
pub use plugin::{Plugin, PluginState};
pub use recording::{
    RECORDING_BYTES_MAX, RecordedCall, RecordedEnd, RecordedGrant, RecordedImport, Recording, RecordingError,
    RecordingHead,
};
pub use registry::{
    MANIFEST_BYTES_MAX, PluginSource, Plugins, Runtime, RuntimeConfig, check_installed_folder,
    read_installed_file, read_plugin_dir, shared_name,
};
pub use replay::{Replayed, ReplayedVerdict};
pub use schedule::{number_thread, processors, tune};
pub use services::Services;
