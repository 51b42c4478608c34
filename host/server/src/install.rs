//! Changes which plugins are installed. The process that holds the data directory does it, one change
//! at a time: it writes new files, checks that a start would accept the result, replaces
//! `plugins.lock`, and lets a running host read it.

mod accept;
mod package;
mod report;

use std::path::Path;

use cofferdam_runtime::{Manifest, Plugins};
use cofferdam_store::Clock;
use semver::Version;

use crate::command::{
    Became, CommandError, CommandOutcome, InstallArguments, ManageCommand, PluginCommand, RemoveArguments,
    RollbackArguments, UpdateArguments,
};
use crate::config::{Config, edit};
use crate::facts;
use crate::failure::Failure;
use crate::grants::{GrantEditor, replace};
use crate::installed::{
    InstalledError, InstalledFolder, InstalledVersion, LockedPlugin, PluginLock, VersionPart, beyond, granted,
};
use crate::timestamp::timestamp;
use crate::wiring::WiringError;

use package::PluginPackage;
use report::{Change, ChangeKind};

/// Carries out a command about grants or installed plugins.
///
/// # Errors
///
/// The plugin or the configuration does not allow it. Nothing was changed then.
pub(crate) fn carry_out(grants: &GrantEditor, command: &PluginCommand) -> Result<CommandOutcome, Failure> {
    match command {
        PluginCommand::Grant(grant) if grant.accept => Installer::new(grants)?.accept(grant),
        PluginCommand::Grant(grant) => grants.carry_out(grant),
        PluginCommand::Manage(ManageCommand::Install(wanted)) => Installer::new(grants)?.install(wanted),
        PluginCommand::Manage(ManageCommand::Update(wanted)) => Installer::new(grants)?.update(wanted),
        PluginCommand::Manage(ManageCommand::Remove(wanted)) => Installer::new(grants)?.remove(wanted),
        PluginCommand::Manage(ManageCommand::Rollback(wanted)) => Installer::new(grants)?.roll_back(wanted),
        PluginCommand::List(_) | PluginCommand::Logs(_) | PluginCommand::Kit(_) => {
            Err(refusal("this command changes nothing"))
        }
    }
}

/// An error that the operator can mend.
fn refusal(message: impl Into<String>) -> Failure {
    CommandError::new(message).into()
}

impl From<InstalledError> for Failure {
    fn from(error: InstalledError) -> Self {
        match error {
            InstalledError::Io { path, error } => Self::system(path.display().to_string())(error),
            error => WiringError::from(error).into(),
        }
    }
}

/// One change of the installed plugins. No other one is made meanwhile.
struct Installer<'d> {
    grants: &'d GrantEditor,
    files: InstalledFolder,
    lock: PluginLock,
    _turn: std::sync::MutexGuard<'d, ()>,
}

impl<'d> Installer<'d> {
    fn new(grants: &'d GrantEditor) -> Result<Self, Failure> {
        let turn = grants.turn();
        let files = InstalledFolder::new(&grants.options().data);
        let lock = files.read_lock()?;
        Ok(Self { grants, files, lock, _turn: turn })
    }

    fn installed(&self, name: &str) -> Result<&LockedPlugin, Failure> {
        self.lock.plugins.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.lock.plugins.keys().map(String::as_str).collect();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            refusal(format!("{name} is not installed; installed: {names}"))
        })
    }

    /// This lock with another entry for a plugin, or without one.
    fn candidate(&self, name: &str, plugin: Option<LockedPlugin>) -> PluginLock {
        let mut candidate = self.lock.clone();
        match plugin {
            Some(plugin) => drop(candidate.plugins.insert(name.to_owned(), plugin)),
            None => drop(candidate.plugins.remove(name)),
        }
        candidate
    }

    /// Installs a plugin that is not installed yet. With the bytes of the installed version, its files
    /// are written again.
    fn install(&self, wanted: &InstallArguments) -> Result<CommandOutcome, Failure> {
        let package = PluginPackage::read(self.grants, wanted.staged.as_ref())?;
        let name = &package.manifest.name;
        let version = package.version(&now());
        match self.lock.plugins.get(name) {
            None => {}
            Some(installed) if installed.current.has_bytes_of(&version) => return self.write_again(&package),
            Some(LockedPlugin { current, .. }) => {
                let (there, file) = (&current.version, wanted.file.display());
                return Err(refusal(format!(
                    "{name} {there} is installed: `cofferdam plugin update {file}` puts another version in its place"
                )));
            }
        }
        let kind = package.manifest.kind.to_string();
        let current = version;
        let plugin = LockedPlugin { kind, current, previous: None, held: None };
        self.put_in_place(&package, plugin, ChangeKind::Installed)
    }

    fn write_again(&self, package: &PluginPackage) -> Result<CommandOutcome, Failure> {
        let name = &package.manifest.name;
        let current = &self.installed(name)?.current;
        self.files.put(name, current, &package.files)?;
        let became = self.grants.tell();
        Ok(Change::new(name, &current.version, ChangeKind::Same).outcome(became))
    }

    /// Puts another version in the place of the one that serves, or holds it.
    fn update(&self, wanted: &UpdateArguments) -> Result<CommandOutcome, Failure> {
        let package = PluginPackage::read(self.grants, wanted.staged.as_ref())?;
        let name = &package.manifest.name;
        let version = package.version(&now());
        let Some(installed) = self.lock.plugins.get(name) else {
            let file = wanted.file.display();
            return Err(refusal(format!(
                "{name} is not installed: `cofferdam plugin install {file}` installs it"
            )));
        };
        if installed.current.has_bytes_of(&version) {
            return self.write_again(&package);
        }
        if installed.kind != package.manifest.kind.to_string() {
            let (is, was) = (package.manifest.kind, &installed.kind);
            return Err(refusal(format!(
                "{name} is a {is} now and a {was} is installed: remove it, then install this one"
            )));
        }
        check_order(&installed.current.version, &version.version, wanted)?;
        let more = beyond(&package.manifest, &self.files.current_asks(name, installed));
        if !more.is_empty() {
            return self.hold(&package, installed, version, more);
        }
        let from = installed.current.version.clone();
        // An update that is held stays held unless it is replaced by a newer one.
        let held = installed.held.clone().filter(|held| is_newer(&held.version, &version.version));
        let plugin = LockedPlugin {
            kind: installed.kind.clone(),
            previous: Some(installed.current.clone()),
            current: version,
            held,
        };
        self.put_in_place(&package, plugin, ChangeKind::Updated { from })
    }

    /// Keeps an update aside that asks for more. An update that was held before is dropped.
    fn hold(
        &self,
        package: &PluginPackage,
        installed: &LockedPlugin,
        version: InstalledVersion,
        more: Vec<String>,
    ) -> Result<CommandOutcome, Failure> {
        let name = &package.manifest.name;
        let (shown, digest) = (version.version.clone(), version.digest());
        let serving = installed.current.version.clone();
        self.files.put(name, &version, &package.files)?;
        // Whether it could serve is found out now and not when it is accepted.
        let accepted = LockedPlugin { current: version.clone(), ..installed.clone() };
        self.check_update(name, &self.candidate(name, Some(accepted)))?;
        let held = LockedPlugin { held: Some(version), ..installed.clone() };
        self.commit(&self.candidate(name, Some(held)))?;
        let change = Change::new(name, &shown, ChangeKind::Held { digest, serving, more });
        Ok(change.outcome(Became::Nothing))
    }

    /// Writes the files of a version that is to serve, and lets it serve.
    fn put_in_place(
        &self,
        package: &PluginPackage,
        mut plugin: LockedPlugin,
        kind: ChangeKind,
    ) -> Result<CommandOutcome, Failure> {
        let name = &package.manifest.name;
        self.files.put(name, &plugin.current, &package.files)?;
        let candidate = self.candidate(name, Some(plugin.clone()));
        let plugins = match kind {
            ChangeKind::Updated { .. } => self.check_update(name, &candidate)?,
            _ => self.check_or_sweep(&candidate)?,
        };
        if let Some(loaded) = plugins.get(name) {
            plugin.current.granted = granted(&facts::plugin_facts(loaded).granted);
        }
        let InstalledVersion { version, manifest_sha256, component_sha256, .. } = plugin.current.clone();
        self.commit(&self.candidate(name, Some(plugin)))?;
        tracing::info!(plugin = %name, %version, %manifest_sha256, %component_sha256, "installed");
        let granted = self.grant_of(name)?;
        let change = Change::new(name, &version, kind).with_asks(&package.manifest, &granted);
        Ok(change.outcome(self.grants.tell()))
    }

    /// Checks what a start would load. If it would refuse it, the files of the new version are
    /// removed again.
    fn check_or_sweep(&self, candidate: &PluginLock) -> Result<Plugins, Failure> {
        let checked = self.check(candidate);
        if checked.is_err() {
            self.files.sweep(&self.lock);
        }
        checked
    }

    /// Checks what a start would load with another version of a plugin, without the other plugins
    /// that it refuses: each of them is mended by an update of its own.
    fn check_update(&self, name: &str, candidate: &PluginLock) -> Result<Plugins, Failure> {
        let (file, text) = self.grants.read_file()?;
        let checked = self.check_beside_refused(name, candidate, &text, &file);
        if checked.is_err() {
            self.files.sweep(&self.lock);
        }
        checked
    }

    fn check_beside_refused(
        &self,
        name: &str,
        candidate: &PluginLock,
        text: &str,
        file: &Path,
    ) -> Result<Plugins, Failure> {
        let (mut rest, mut text) = (candidate.clone(), text.to_owned());
        let mut checked = self.grants.check(&text, file, Some(&rest));
        loop {
            let refused = match checked {
                Ok(plugins) => return Ok(plugins),
                Err(refused) => refused,
            };
            let other = refused.plugin().filter(|other| *other != name).map(str::to_owned);
            let Some(other) = other.filter(|other| rest.plugins.remove(other).is_some()) else {
                return Err(refused);
            };
            tracing::warn!(%refused, "a start would still be refused after this change");
            if Config::parse(&text, file, &self.grants.options().data)?.plugins.contains_key(&other) {
                let without = edit::remove(&text, &other);
                text = without.map_err(|error| refusal(format!("{}: {error}", file.display())))?;
            }
            checked = self.grants.load(&text, file, &rest);
        }
    }

    fn check(&self, candidate: &PluginLock) -> Result<Plugins, Failure> {
        let (file, text) = self.grants.read_file()?;
        self.grants.check(&text, &file, Some(candidate))
    }

    /// Puts a lock into force, then removes the files that it does not name.
    fn commit(&self, candidate: &PluginLock) -> Result<(), Failure> {
        self.files.commit(candidate)?;
        self.files.sweep(candidate);
        Ok(())
    }

    /// What the configuration grants a plugin.
    fn grant_of(&self, name: &str) -> Result<cofferdam_runtime::OperatorGrant, Failure> {
        let mut config = self.config()?;
        Ok(config.plugins.remove(name).unwrap_or_default())
    }

    fn config(&self) -> Result<Config, Failure> {
        let (file, text) = self.grants.read_file()?;
        Ok(Config::parse(&text, &file, &self.grants.options().data)?)
    }

    fn remove(&self, wanted: &RemoveArguments) -> Result<CommandOutcome, Failure> {
        let name = &wanted.name;
        let installed = self.installed(name)?;
        if wanted.held {
            let Some(held) = &installed.held else {
                return Err(refusal(format!("no update of {name} is held")));
            };
            let version = held.version.clone();
            let plugin = LockedPlugin { held: None, ..installed.clone() };
            self.commit(&self.candidate(name, Some(plugin)))?;
            return Ok(Change::new(name, &version, ChangeKind::Dropped).outcome(Became::Nothing));
        }
        let version = installed.current.version.clone();
        let candidate = self.candidate(name, None);
        let (file, text) = self.grants.read_file()?;
        let left = self.text_without(wanted, &text, &file)?;
        self.check_repair(&left, &file, &candidate)?;
        // After a crash between the two, a plugin without its table serves with no grants. One that
        // replaces a built-in plugin would not load: there the table stays until the plugin is gone.
        let replaces = Config::parse(&text, &file, &self.grants.options().data)?
            .plugins
            .get(name)
            .is_some_and(|grant| grant.replaces);
        if replaces {
            self.commit(&candidate)?;
        }
        if left != text {
            replace(&file, &text, &left).map_err(Failure::system(file.display().to_string()))?;
        }
        if !replaces {
            self.commit(&candidate)?;
        }
        tracing::info!(plugin = %name, %version, "removed");
        Ok(Change::new(name, &version, ChangeKind::Removed).outcome(self.grants.tell()))
    }

    /// The configuration that is left when a plugin is removed.
    fn text_without(&self, wanted: &RemoveArguments, text: &str, file: &Path) -> Result<String, Failure> {
        let name = &wanted.name;
        let config = Config::parse(text, file, &self.grants.options().data)?;
        let Some(grant) = config.plugins.get(name) else { return Ok(text.to_owned()) };
        if wanted.grants {
            return edit::remove(text, name).map_err(|error| refusal(format!("{}: {error}", file.display())));
        }
        if grant.replaces {
            // The built-in plugin takes its place again.
            return Ok(text.to_owned());
        }
        Err(refusal(format!(
            "{} has a table [plugins.{name}], which needs the plugin: take it out, or let `cofferdam plugin remove \
             {name} --grants` do it",
            file.display()
        )))
    }

    fn roll_back(&self, wanted: &RollbackArguments) -> Result<CommandOutcome, Failure> {
        let name = &wanted.name;
        let installed = self.installed(name)?.clone();
        let LockedPlugin { kind, current, previous, held } = installed;
        let Some(previous) = previous else {
            return Err(refusal(format!("there is no version of {name} before {}", current.version)));
        };
        self.files.read(name, &previous).map_err(|error| error.in_part(VersionPart::Earlier))?;
        let (from, version) = (current.version.clone(), previous.version.clone());
        let plugin = LockedPlugin { kind, current: previous, previous: Some(current), held };
        let candidate = self.candidate(name, Some(plugin));
        let (file, text) = self.grants.read_file()?;
        self.check_repair(&text, &file, &candidate)?;
        self.commit(&candidate)?;
        tracing::info!(plugin = %name, %version, "rolled back");
        Ok(Change::new(name, &version, ChangeKind::RolledBack { from }).outcome(self.grants.tell()))
    }

    /// Checks a change that may mend plugins which do not load. It is refused only if a start with
    /// the present lock would be accepted: several damaged plugins are mended one after the other.
    fn check_repair(&self, text: &str, file: &Path, candidate: &PluginLock) -> Result<(), Failure> {
        let Err(refused) = self.grants.check(text, file, Some(candidate)) else { return Ok(()) };
        match self.check(&self.lock) {
            Ok(_) => Err(refused),
            Err(_) => {
                tracing::warn!(%refused, "a start would still be refused after this change");
                Ok(())
            }
        }
    }
}

fn now() -> String {
    timestamp(Clock::system().now_ms())
}

/// Checks that a version may follow another one.
fn check_order(old: &str, new: &str, wanted: &UpdateArguments) -> Result<(), Failure> {
    let parse =
        |text: &str| Version::parse(text).map_err(|error| refusal(format!("the version {text:?}: {error}")));
    let (old, new) = (parse(old)?, parse(new)?);
    match new.cmp_precedence(&old) {
        std::cmp::Ordering::Greater => Ok(()),
        std::cmp::Ordering::Less if wanted.allow_downgrade => Ok(()),
        std::cmp::Ordering::Less => Err(refusal(format!(
            "{new} is older than {old}, which is installed: `--allow-downgrade` takes it all the same"
        ))),
        std::cmp::Ordering::Equal if wanted.replace => Ok(()),
        std::cmp::Ordering::Equal => Err(refusal(format!(
            "{new} is installed with other bytes: give the new one another version, or take it with `--replace`"
        ))),
    }
}

/// Whether a version that is held is newer than another one.
fn is_newer(held: &str, other: &str) -> bool {
    let (held, other) = (Version::parse(held), Version::parse(other));
    held.is_ok_and(|held| other.is_ok_and(|other| held.cmp_precedence(&other).is_gt()))
}

/// Whether a manifest's version can be compared.
///
/// # Errors
///
/// It does not have the form of semver.org.
pub(crate) fn check_version(manifest: &Manifest) -> Result<(), Failure> {
    Version::parse(&manifest.version).map(drop).map_err(|_| {
        let Manifest { name, version, .. } = manifest;
        refusal(format!(
            "the manifest of {name} has the version {version:?}; versions of installed plugins have the form 1.2.3 of \
             semver.org, so that updates can be compared"
        ))
    })
}
