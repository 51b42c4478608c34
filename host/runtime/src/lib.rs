//! The WebAssembly sandbox. This crate loads plugins, checks them against the contract in `wit/`,
//! and calls them within limits of time, memory, output and host calls. A misbehaving guest ends
//! its call with a [`CallError`]; the host and all other requests continue.
//!
//! [`Runtime::load`] loads plugins, and the methods of [`Plugin`] call them. One attempt at a
//! provider keeps its [`ProviderInstance`] from `prepare` to the last event. Instances of routers
//! and providers may also serve later calls of the same [`Owner`]; an instance never serves two
//! owners.

#![warn(missing_docs)]

mod account;
mod bindings;
mod cache;
mod calls;
mod context;
mod contract;
mod counters;
mod engine;
mod error;
mod fairness;
mod grant;
mod host;
mod imports;
mod injection;
mod instance;
mod limits;
mod logs;
pub mod manifest;
mod plugin;
mod registry;
mod room;
mod schedule;
pub mod services;
mod warm;
pub mod wire;

pub use calls::provider::ProviderInstance;
pub use calls::router::ChoiceQuestion;
pub use context::{CallContext, Owner};
pub use counters::{CounterValues, Counters};
pub use error::{
    CallError, CallErrorKind, ContractError, Distrust, LoadError, ManifestError, StartError, TrapKind,
};
pub use fairness::{Fairness, Holders};
pub use grant::{Compile, Denial, Grant, HostAccess, HostGrant, OnReflection, OperatorGrant, SecretSource};
pub use host::{Gauges, InstancePermits};
pub use injection::{InjectionError, InjectionRule, InjectionTarget, WrittenInjection, is_injectable_header};
pub use manifest::{Asked, Manifest, PluginKind};
pub use plugin::{Plugin, PluginState};
pub use registry::{PluginSource, Plugins, Runtime, RuntimeConfig, read_plugin_dir};
pub use schedule::tune;
pub use services::Services;
