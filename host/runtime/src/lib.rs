//! The only crate that knows the sandbox: it loads plugins, checks them against
//! the contract of `wit/`, and calls them inside limits of time, memory, output
//! and host calls. What a guest does wrong ends that call with a [`CallError`]
//! and nothing else: the host and all other requests go on.
//!
//! Load with [`Runtime::load`], call with the methods of [`Plugin`]. One
//! attempt at a provider keeps its [`ProviderInstance`] from `prepare` to the
//! last event. Routers and providers may serve the next call of the same
//! [`Owner`] with the same instance; nobody else ever meets it.

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
pub use grant::{Compile, Denial, Grant, HostAccess, HostGrant, OnReflection, OperatorGrant};
pub use host::{Gauges, Places};
pub use injection::{InjectionError, InjectionRule, Slot, WrittenInjection, is_injectable_header};
pub use manifest::{Asked, Kind, Manifest};
pub use plugin::{Plugin, PluginState};
pub use registry::{PluginSource, Plugins, Runtime, RuntimeConfig, read_plugin_dir};
pub use schedule::tune;
pub use services::Services;
