//! Shows and changes the grants of plugins in the configuration file. The file is replaced
//! atomically, and only by a configuration that `serve` would accept.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_engine::Memory;
use cofferdam_runtime::{Asked, Manifest, Plugins, Runtime};
use cofferdam_store::{Draft, HostName, SecretName};
use rustix::process::{Signal, getpid, kill_process};

use crate::command::{Became, CommandError, CommandOutcome, GrantCommand, granted, shown};
use crate::config::edit::{self, Additions};
use crate::config::{Config, ConfigError, Environment};
use crate::facts;
use crate::failure::Failure;
use crate::installed::{self, PluginLock, PluginPlaces};
use crate::options::{Options, Serve};
use crate::wiring;

/// Finds and checks the configuration of a process, for `plugin grant`.
pub(crate) struct GrantEditor {
    options: Options,
    arguments: Serve,
    runtime: Runtime,
    environment: Arc<Environment>,
    serves: bool,
    /// Serializes changes of the file.
    turn: Mutex<()>,
}

impl GrantEditor {
    /// For a running host, which reloads after a change.
    pub(crate) fn serving(
        options: Options,
        arguments: Serve,
        runtime: Runtime,
        environment: Arc<Environment>,
    ) -> Self {
        Self { options, arguments, runtime, environment, serves: true, turn: Mutex::default() }
    }

    /// For a command that runs without a host.
    pub(crate) fn alone(options: &Options, folder: Option<&Path>, runtime: Runtime) -> Self {
        let environment = Arc::new(Environment::offline());
        let arguments = Serve { plugins: folder.map(Path::to_path_buf), ..Serve::default() };
        let options = options.clone();
        Self { options, arguments, runtime, environment, serves: false, turn: Mutex::default() }
    }

    /// Shows what a plugin asks for, or adds to its grants.
    ///
    /// # Errors
    ///
    /// The plugin does not exist or does not ask for the grant, or the configuration is not valid
    /// before or after the change.
    pub(crate) fn carry_out(&self, command: &GrantCommand) -> Result<CommandOutcome, Failure> {
        let _turn = self.turn();
        let (file, text) = self.read_file()?;
        let plugins = self.check(&text, &file, None)?;
        let Some(plugin) = plugins.get(&command.name) else {
            let names: Vec<&str> = plugins.iter().map(|plugin| plugin.name()).collect();
            let message = format!("there is no plugin {}; installed: {}", command.name, names.join(", "));
            return Err(CommandError::new(message).into());
        };
        if command.is_question() {
            return Ok(shown(&facts::plugin_facts(plugin), &installed::held(&self.options.data)));
        }
        refuse_unasked(command, plugin.manifest())?;
        let additions = Additions {
            hosts: command.hosts.iter().cloned().collect(),
            secrets: command.secrets.iter().cloned().collect(),
            imports: command.imports.iter().cloned().collect(),
            placeholder_headers: command.placeholder_headers.iter().cloned().collect(),
        };
        let edited = edit::add(&text, &command.name, &additions)
            .map_err(|error| CommandError::new(format!("{}: {error}", file.display())))?;
        let became = match (edited.lines.is_empty(), command.print) {
            (true, _) => Became::Nothing,
            (false, true) => {
                self.check(&edited.text, &file, None)?;
                Became::Printed
            }
            (false, false) => {
                self.check(&edited.text, &file, None)?;
                replace(&file, &text, &edited.text).map_err(Failure::system(file.display().to_string()))?;
                self.tell()
            }
        };
        Ok(granted(&command.name, &file.display().to_string(), &edited.lines, became))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Checks whether a reload would take the configuration file and the plugins.
    ///
    /// # Errors
    ///
    /// What a reload would refuse them for.
    pub(crate) fn check_file(&self) -> Result<(), Failure> {
        let (file, text) = self.read_file()?;
        self.check(&text, &file, None).map(drop)
    }

    /// Waits for the other changes of configuration and plugins, and keeps further ones out.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of the configuration file and its text, which is empty if there is no file.
    pub(crate) fn read_file(&self) -> Result<(PathBuf, String), ConfigError> {
        let file = Config::path(self.options.config.as_deref(), &self.options.data);
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok((file, text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.options.config.is_none() => {
                Ok((file, String::new()))
            }
            Err(cause) => Err(ConfigError::Unreadable { path: file, cause }),
        }
    }

    /// Checks a configuration like `serve --check` and returns its plugins. `candidate` stands for the
    /// lock of installed plugins, before it is written.
    pub(crate) fn check(
        &self,
        text: &str,
        file: &Path,
        candidate: Option<&PluginLock>,
    ) -> Result<Plugins, Failure> {
        let config = self.parse(text, file)?;
        let places = self.places(candidate);
        Ok(wiring::catalog_services(
            &config,
            places,
            &self.runtime,
            &self.environment,
            &Memory::default(),
            0,
        )?
        .plugins)
    }

    /// Checks only whether the plugins can be loaded.
    pub(crate) fn load(&self, text: &str, file: &Path, candidate: &PluginLock) -> Result<Plugins, Failure> {
        let config = self.parse(text, file)?;
        Ok(wiring::loaded(&config, self.places(Some(candidate)), &self.runtime)?)
    }

    fn parse(&self, text: &str, file: &Path) -> Result<Config, Failure> {
        let mut config = Config::parse(text, file, &self.options.data)?;
        self.arguments.apply(&mut config);
        Ok(config)
    }

    fn places<'p>(&'p self, candidate: Option<&'p PluginLock>) -> PluginPlaces<'p> {
        let folder = self.arguments.plugins.as_deref();
        PluginPlaces { candidate, ..PluginPlaces::new(&self.options.data, folder) }
    }

    /// Sends SIGHUP to this process if it serves, so that it reloads its configuration.
    pub(crate) fn tell(&self) -> Became {
        if self.serves && kill_process(getpid(), Signal::HUP).is_ok() {
            return Became::Told;
        }
        Became::Written
    }
}

/// Refuses to grant what the plugin's manifest does not ask for: the grant would have no effect.
fn refuse_unasked(command: &GrantCommand, manifest: &Manifest) -> Result<(), CommandError> {
    let refuse = |what: &str, name: &str, asked: String| {
        let plugin = &manifest.name;
        Err(CommandError::new(format!(
            "{plugin} does not ask for the {what} {name}: its manifest has {asked}"
        )))
    };
    for host in &command.hosts {
        let is_asked = match host.parse::<HostName>() {
            Ok(host) => manifest.hosts.covers(&host),
            Err(_) => !manifest.hosts.is_empty(),
        };
        if !is_asked {
            return refuse("host", host, list("hosts", &manifest.hosts));
        }
    }
    for secret in &command.secrets {
        if !secret.parse::<SecretName>().is_ok_and(|name| manifest.secrets.covers(&name)) {
            return refuse("secret", secret, list("secrets", &manifest.secrets));
        }
    }
    for header in &command.placeholder_headers {
        if !manifest.placeholder_headers.contains(header) {
            let asked = Asked::Named(manifest.placeholder_headers.clone());
            return refuse("placeholder header", header, list("placeholder_headers", &asked));
        }
    }
    for import in &command.imports {
        if !manifest.imports.iter().any(|asked| asked.as_str() == import) {
            return refuse("import", import, list("imports", &Asked::Named(manifest.imports.clone())));
        }
    }
    Ok(())
}

fn list<T: Ord + ToString>(key: &str, asked: &Asked<T>) -> String {
    let names: BTreeSet<String> = asked.named().map(|name| format!("{:?}", name.to_string())).collect();
    match asked {
        Asked::Any => format!("{key} = [\"*\"]"),
        Asked::Named(_) => format!("{key} = [{}]", names.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// Replaces the text of a file at once, unless it is another one than `before` by now. A symbolic link stays a
/// link, and permissions stay.
pub(crate) fn replace(file: &Path, before: &str, text: &str) -> std::io::Result<()> {
    let file = match std::fs::canonicalize(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => file.to_path_buf(),
        file => file?,
    };
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if !folder.exists() {
        // The data directory may not exist before the first start.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mode = match std::fs::metadata(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0o600,
        metadata => metadata?.permissions().mode() & 0o7777,
    };
    let draft = Draft::write(&file, text.as_bytes(), 0o600)?;
    draft.set_mode(mode)?;
    let now = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        now => now?,
    };
    if now != before {
        return Err(std::io::Error::other("the file was changed meanwhile; try again"));
    }
    draft.replace()
}
