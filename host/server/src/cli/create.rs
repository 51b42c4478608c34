//! `store create` and `store migrate`: make the store in the database that the configuration names, once
//! for all hosts.

use cofferdam_store::Store;
use serde_json::json;

use super::run::print;
use crate::command::{CommandError, CommandOutcome};
use crate::config::{Config, DatabaseConfig};
use crate::execute::teller;
use crate::failure::Failure;
use crate::options::Options;
use crate::serve::first_key;
use crate::start::{acquire, block_on, open_options};

/// Makes the store and prints its first key.
///
/// # Errors
///
/// The configuration names no database, the database cannot be used, or it has a store.
pub(super) fn create(options: &Options) -> Result<(), Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let database = database(&config, "; the store of a data directory is made by the first start")?;
    // Makes the directory too, in which the root key may have to be made.
    let _lock = acquire(&options.data)?;
    let store = Store::create_in(&database.prepare()?, &open_options(&config, None))?;
    let made = block_on(first_keys(&config, &store));
    store.close();
    print(options, &made??)
}

/// Moves the store of the data directory there.
///
/// # Errors
///
/// The configuration names no database, the directory has no store or a host serves it, the database cannot
/// be used, or it has a store.
pub(super) fn migrate(options: &Options) -> Result<(), Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let database = database(&config, ", so there is nowhere to move the store to")?.prepare()?;
    if !Store::exists(&options.data)? {
        let message = format!("{} has no store to move", options.data.display());
        return Err(CommandError::new(message).into());
    }
    let open = open_options(&config, None);
    let store = Store::open(acquire(&options.data)?, open.clone())?;
    let moved = store.move_to(&database, &open, &mut teller(options));
    store.close();
    let moved = moved?;
    let document = json!({
        "store_id": store.status().store_id.to_string(), "seq": moved.seq, "rows": moved.rows,
        "secrets": moved.secrets, "keys": moved.keys,
    });
    let text = format!(
        "Moved the store up to commit {}: {} rows, {} secrets, {} API keys. The copy was checked.\n\
         Start the hosts with `cofferdam serve`. {} keeps the store as it was; it is not served any more.\n",
        moved.seq,
        moved.rows,
        moved.secrets,
        moved.keys,
        options.data.display()
    );
    print(options, &CommandOutcome { document, text })
}

/// Moves the store of the database into the data directory.
///
/// # Errors
///
/// The configuration names no database, it cannot be used or has no store, hosts have the store open, or the
/// directory has a store.
pub(super) fn migrate_back(options: &Options) -> Result<(), Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let database = database(&config, ", so there is no store to move")?.prepare()?;
    let lock = acquire(&options.data)?;
    let moved = Store::move_back(&lock, &database, &open_options(&config, None), &mut teller(options))?;
    let done = moved.map_or_else(
        || "The move was complete but for its end.".to_owned(),
        |moved| {
            format!(
                "Moved the store up to position {}: {} rows, {} secrets, {} API keys. The copy was checked.",
                moved.seq, moved.rows, moved.secrets, moved.keys
            )
        },
    );
    let document = match moved {
        Some(moved) => json!({
            "seq": moved.seq, "rows": moved.rows, "secrets": moved.secrets, "keys": moved.keys,
        }),
        None => json!({"seq": null, "rows": null, "secrets": null, "keys": null}),
    };
    let text = format!(
        "{done}\nRemove `[store] url` from the configuration and start the host with `cofferdam serve`. No host \
         serves the store from the database any more.\n"
    );
    print(options, &CommandOutcome { document, text })
}

/// The database of the configuration.
fn database<'c>(config: &'c Config, otherwise: &str) -> Result<&'c DatabaseConfig, CommandError> {
    config.store.database.as_ref().ok_or_else(|| CommandError {
        is_configuration: true,
        ..CommandError::new(format!("`[store] url` names no database{otherwise}"))
    })
}

/// Makes the first key. The store is there, so a failure names the command that makes a key.
async fn first_keys(config: &Config, store: &Store) -> Result<CommandOutcome, CommandError> {
    let workspace = store.find_workspace("default").await?.id;
    let key = first_key(store, workspace).map_err(|error| CommandError {
        message: format!(
            "the store was made, and its first key was not: {error}; make one with `cofferdam key create \
             --workspace default`"
        ),
        ..error
    })?;
    let (status, root_key) = (store.status(), config.vault.root_key.to_string());
    let hosts = store.database_hosts().unwrap_or_default();
    let document = json!({
        "store_id": status.store_id.to_string(),
        "database_hosts": hosts,
        "root_key_id": status.root_key_id.to_string(),
        "root_key": root_key,
        "key": *key.token,
    });
    let text = format!(
        "Made store {} in the database at {}.\n\
         Every host needs its root key {}, which is in {root_key}.\n\n\
         A key for the workspace `default`, shown this once:\n\n  {}\n\n\
         Start each host with `cofferdam serve`.\n",
        status.store_id,
        hosts.join(", "),
        status.root_key_id,
        *key.token,
    );
    Ok(CommandOutcome { document, text })
}
