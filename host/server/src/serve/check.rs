//! `serve --check`: checks configuration and plugins, and looks for the operator's secrets in the
//! store.

use std::collections::BTreeSet;

use cofferdam_engine::Memory;
use cofferdam_store::{
    Clock, DirectoryLock, HostName, LockError, OpenError, RootKeyError, SecretName, Store,
};
use serde_json::json;

use super::renewal::unix_s;
use crate::command::{Command, ListLimit, SecretCommand, SecretScope};
use crate::config::{Config, Environment};
use crate::execute::execute;
use crate::failure::Failure;
use crate::installed::PluginPlaces;
use crate::options::{Options, Serve};
use crate::start::{StoreUse, block_on, connect, open, runtime, write_out};
use crate::tls::Tls;
use crate::wiring::operator_secrets::{Missing, are_wanted, missing, missing_of};
use crate::wiring::{self, advice};

/// Checks configuration and plugins, and prints what was found.
///
/// # Errors
///
/// The configuration cannot be served.
pub(super) fn check(
    options: &Options,
    arguments: &Serve,
    config: &Config,
    environment: &Environment,
) -> Result<(), Failure> {
    let runtime = runtime(config, &options.data)?;
    let places = PluginPlaces::new(&options.data, arguments.plugins.as_deref());
    let services = wiring::catalog_services(config, places, &runtime, environment, &Memory::default(), 0)?;
    if let Some(files) = &config.server.tls {
        Tls::start(files, unix_s(&Clock::system()))?;
    }
    check_store(options, config)?;
    advice::warn_of_origins(config);
    let (models, plugins) = (services.catalog.models().len(), services.plugins.iter().count());
    let secrets = check_secrets(options, config);
    if options.json {
        let checked = json!({"ok": true, "models": models, "plugins": plugins, "operator_secrets": secrets});
        return write_out(&format!("{checked}\n"));
    }
    let secrets = secrets.map(|secrets| format!("The operator's secrets: {secrets}.\n")).unwrap_or_default();
    write_out(&format!("The configuration is good: {models} models, {plugins} plugins.\n{secrets}"))
}

/// What the configuration says about the store: the password of a database, and the root key. The first start
/// makes a root key file that does not exist; for a store in a database, `store create` does.
///
/// # Errors
///
/// A password, a file of certificates or a root key cannot be read.
fn check_store(options: &Options, config: &Config) -> Result<(), Failure> {
    if let Some(database) = &config.store.database {
        database.prepare()?;
    }
    match config.vault.root_key.check() {
        Err(error @ RootKeyError::Missing(_)) if config.store.database.is_some() => {
            tracing::warn!(%error, "`store create` makes the root key with a new store; hosts of a store need its key");
            Ok(())
        }
        Err(RootKeyError::Missing(_)) if !Store::exists(&options.data)? => Ok(()),
        checked => checked.map_err(Failure::RootKey),
    }
}

/// For `--check`: which of the operator's secrets named by the configuration are stored. `None` if
/// it names none. A missing secret is reported but is no error of the configuration.
fn check_secrets(options: &Options, config: &Config) -> Option<String> {
    if !are_wanted(config) {
        return None;
    }
    Some(match look(options, config) {
        Ok(Looked::NoStore) => "not checked: no store".to_owned(),
        Ok(Looked::Missing(missing)) if missing.is_empty() => "all stored".to_owned(),
        Ok(Looked::Missing(missing)) => {
            let commands: Vec<String> = missing.iter().map(|it| format!("`{}`", it.command())).collect();
            format!("missing, store them with {}", commands.join(" and "))
        }
        Err(error) => format!("not checked: {error}"),
    })
}

/// The result of looking for the secrets in the store.
enum Looked {
    /// Missing secrets; may be empty.
    Missing(Vec<Missing>),
    NoStore,
}

/// Looks for the secrets in the store of a data directory. If a host holds the store, the host is
/// asked.
///
/// # Errors
///
/// The store cannot be opened, or the host does not answer.
fn look(options: &Options, config: &Config) -> Result<Looked, Failure> {
    if let Some(database) = &config.store.database {
        let store = match connect(config, database, StoreUse::Command) {
            Err(Failure::Open(OpenError::NoStore)) => return Ok(Looked::NoStore),
            connected => connected?,
        };
        let missing = block_on(missing(config, &store));
        store.close();
        let missing = missing?.map_err(|error| Failure::Command(error.into()))?;
        missing.iter().for_each(Missing::warn);
        return Ok(Looked::Missing(missing));
    }
    if !options.data.join("store").exists() {
        return Ok(Looked::NoStore);
    }
    let missing = match DirectoryLock::acquire(&options.data) {
        Ok(lock) => {
            let store = open(config, lock, None)?;
            let missing = block_on(missing(config, &store));
            store.close();
            missing?.map_err(|error| Failure::Command(error.into()))?
        }
        Err(LockError::Held { .. }) => {
            let stored = listed(options)?;
            let is_listed =
                |name: &SecretName, host: &HostName| stored.contains(&(name.to_string(), host.to_string()));
            missing_of(config, is_listed)
        }
        Err(error) => return Err(error.into()),
    };
    missing.iter().for_each(Missing::warn);
    Ok(Looked::Missing(missing))
}

/// Name and host of each secret in the operator's vault, from the running host.
fn listed(options: &Options) -> Result<BTreeSet<(String, String)>, Failure> {
    let scope = SecretScope { workspace: None, intern: None, operator: true };
    let outcome =
        execute(options, &Command::Secret(SecretCommand::List { scope, limit: ListLimit::default() }))?;
    let mut listed = BTreeSet::new();
    for secret in outcome.document.as_array().into_iter().flatten() {
        let name = secret["name"].as_str().unwrap_or_default();
        for host in secret["hosts"].as_array().into_iter().flatten().filter_map(|host| host.as_str()) {
            listed.insert((name.to_owned(), host.to_owned()));
        }
    }
    Ok(listed)
}
