//! The operator's configuration. `cofferdam.toml` is parsed and checked into a [`Config`] once,
//! before anything starts. Each section has its file; names, defaults and units of all keys are in
//! `keys`, from which the documentation is generated. All mistakes of a file are reported together,
//! each with file, line, column and key.

mod broadcast;
mod document;
pub(crate) mod edit;
mod egress;
mod environment;
pub mod keys;
mod limits;
mod models;
mod plugins;
mod prompts;
mod providers;
mod routing;
mod server;
mod shared;
mod store;
mod timeouts;
mod vault;
mod workspaces;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use cofferdam_engine::request::Prompts;
use document::ConfigDocument;

pub use broadcast::Broadcast;
pub use document::{ConfigSpan, Problem};
pub use environment::{Environment, EnvironmentCredentials, Of};
pub use limits::{LimitsConfig, RateLimits};
pub use models::{EndpointConfig, ModelConfig, demo};
pub(crate) use plugins::RECORDINGS_MAX;
pub use providers::{KeySource, ProviderConfig};
pub use routing::Routing;
pub use server::{NamedFile, ServerConfig, TlsFiles};
pub use store::{DatabaseConfig, StoreConfig};
pub use timeouts::TimeoutsConfig;
pub use vault::VaultConfig;
pub use workspaces::{WorkspaceConfig, WorkspaceName};

/// The default of `--config`, inside the data directory.
const FILE_NAME: &str = "cofferdam.toml";

/// A checked configuration. It only names the credentials of providers and destinations;
/// [`Environment`] reads them.
#[derive(Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub timeouts: TimeoutsConfig,
    pub limits: LimitsConfig,
    pub routing: Routing,
    pub vault: VaultConfig,
    pub store: StoreConfig,
    /// Rules for outbound requests.
    pub egress: cofferdam_egress::EgressConfig,
    /// Providers, in the order of the file.
    pub providers: Vec<ProviderConfig>,
    /// The catalog, in the order of the file.
    pub models: Vec<ModelConfig>,
    pub prompts: Prompts,
    /// Destinations of request export, in the order of the file.
    pub broadcast: Vec<Broadcast>,
    /// Grants to plugins, by plugin name.
    pub plugins: BTreeMap<String, cofferdam_runtime::OperatorGrant>,
    /// The position of each grant in the file.
    pub plugin_places: BTreeMap<String, ConfigSpan>,
    /// Plugin defaults of workspaces, in the order of the file.
    pub workspaces: Vec<WorkspaceConfig>,
    /// Digest of what must be equal on all hosts that share a store.
    pub shared: [u8; 32],
}

#[derive(Debug)]
pub enum ConfigError {
    Unreadable {
        path: PathBuf,
        cause: std::io::Error,
    },
    /// The text has mistakes; the list is never empty.
    Invalid(Vec<Problem>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(out, "{}: {cause}", path.display()),
            Self::Invalid(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                out.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads `file`, or `cofferdam.toml` in the data directory if it exists. Without a file all
    /// keys have their defaults.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not valid.
    pub fn load(file: Option<&Path>, data: &Path) -> Result<Self, ConfigError> {
        let path = Self::path(file, data);
        if file.is_none() && !path.exists() {
            return Self::parse("", &path, data);
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|cause| ConfigError::Unreadable { path: path.clone(), cause })?;
        Self::parse(&text, &path, data)
    }

    #[must_use]
    pub fn path(file: Option<&Path>, data: &Path) -> PathBuf {
        file.map_or_else(|| data.join(FILE_NAME), Path::to_path_buf)
    }

    /// Checks the text of a configuration file. Relative paths in it refer to the directory of
    /// `path`.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, in the order of the file.
    pub fn parse(text: &str, path: &Path, data: &Path) -> Result<Self, ConfigError> {
        let document =
            ConfigDocument::parse(text, path).map_err(|problem| ConfigError::Invalid(vec![problem]))?;
        let root = document.root();
        let timeouts = timeouts::read(&root.table("timeouts"));
        let server = server::read(&root.table("server"));
        let egress = egress::read(&root.table("egress"), timeouts.connect);
        let providers = providers::read(&root.tables("providers"), &egress);
        let (plugins, plugin_places) = plugins::read(&root.table("plugins"));
        let config = Self {
            server,
            limits: limits::read(&root.table("limits")),
            routing: routing::read(&root.table("routing")),
            vault: vault::read(&root.table("vault"), data),
            store: store::read(&root.table("store")),
            models: models::read(&root.tables("models"), &providers),
            prompts: prompts::read(&root.tables("prompts")),
            broadcast: broadcast::read(&root.tables("broadcast"), &egress),
            plugins,
            plugin_places,
            workspaces: workspaces::read(&root.tables("workspaces")),
            shared: shared::digest(text),
            timeouts,
            egress,
            providers,
        };
        let problems = document.problems();
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(problems)) }
    }

    /// Whether the file names no provider and no model. The catalog then holds the built-in demo.
    #[must_use]
    pub fn is_demo(&self) -> bool {
        self.providers.is_empty() && self.models.is_empty()
    }
}

#[cfg(test)]
mod tests;
