//! The operator's configuration: `cofferdam.toml` as written becomes a checked
//! [`Config`], once, before anything starts. Every section has its file; the
//! names, defaults and units of all keys stand in `keys`, from which
//! `docs/configuration.md` is made. A mistake is reported with file, line, column
//! and key, and all mistakes of a file are reported together.

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
mod store;
mod timeouts;
mod vault;
mod workspaces;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use cofferdam_engine::request::Prompts;
use document::Document;

pub use broadcast::Broadcast;
pub use document::{Place, Problem};
pub use environment::{Credentials, Environment, Of};
pub use limits::{Limits, Pace};
pub use models::{DataCollection, Endpoint, Model, ModelKind, demo};
pub use providers::{KeySource, Provider};
pub use routing::Routing;
pub use server::Server;
pub use store::Store;
pub use timeouts::Timeouts;
pub use vault::Vault;
pub use workspaces::{Workspace, WorkspaceName};

/// What `--config` defaults to inside the data directory.
const FILE_NAME: &str = "cofferdam.toml";

/// A checked configuration. Values of one section never depend on another file
/// or on the environment; credentials are named here and read by [`Environment`].
#[derive(Debug)]
pub struct Config {
    /// Where the listeners are and what region this host reports.
    pub server: Server,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// How much may happen at once.
    pub limits: Limits,
    /// What the host does by itself when endpoints fail.
    pub routing: Routing,
    /// The root key, and what clients may ask of the vault.
    pub vault: Vault,
    /// How the store treats the disk that it lies on.
    pub store: Store,
    /// What may leave the machine.
    pub egress: cofferdam_egress::EgressConfig,
    /// Upstream services, in the order of the file.
    pub providers: Vec<Provider>,
    /// The catalog, in the order of the file.
    pub models: Vec<Model>,
    /// Templates that requests name.
    pub prompts: Prompts,
    /// Who is told of finished requests, in the order of the file.
    pub broadcast: Vec<Broadcast>,
    /// What the operator grants to plugins, by plugin name.
    pub plugins: BTreeMap<String, cofferdam_runtime::OperatorGrant>,
    /// Where each of these stands in the file.
    pub plugin_places: BTreeMap<String, Place>,
    /// What the requests of workspaces have without asking, in the order of the file.
    pub workspaces: Vec<Workspace>,
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file says something it may not say.
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
    /// Reads `file`, or `cofferdam.toml` of the data directory when it exists, or
    /// takes the defaults.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is not acceptable.
    pub fn load(file: Option<&Path>, data: &Path) -> Result<Self, ConfigError> {
        let path = Self::path(file, data);
        if file.is_none() && !path.exists() {
            return Self::parse("", &path, data);
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|cause| ConfigError::Unreadable { path: path.clone(), cause })?;
        Self::parse(&text, &path, data)
    }

    /// The file that [`Config::load`] reads, whether it exists or not.
    #[must_use]
    pub fn path(file: Option<&Path>, data: &Path) -> PathBuf {
        file.map_or_else(|| data.join(FILE_NAME), Path::to_path_buf)
    }

    /// Checks the text of a configuration file. Relative paths in it are relative
    /// to the directory of `path`.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, in the order of the sections.
    pub fn parse(text: &str, path: &Path, data: &Path) -> Result<Self, ConfigError> {
        let document = Document::parse(text, path).map_err(|problem| ConfigError::Invalid(vec![problem]))?;
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
            timeouts,
            egress,
            providers,
        };
        let problems = document.problems();
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(problems)) }
    }

    /// True when the file names neither a provider nor a model: then the catalog
    /// holds the embedded demo.
    #[must_use]
    pub fn is_demo(&self) -> bool {
        self.providers.is_empty() && self.models.is_empty()
    }
}

#[cfg(test)]
mod tests;
