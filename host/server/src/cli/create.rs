//! `store create`: makes the store in the database that the configuration names, once for all hosts.

use cofferdam_store::Store;
use serde_json::json;
use zeroize::Zeroizing;

use super::run::print;
use crate::command::{CommandError, CommandOutcome};
use crate::config::Config;
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
    let Some(database) = &config.store.database else {
        let message =
            "`[store] url` names no database; the store of a data directory is made by the first start";
        return Err(CommandError { is_configuration: true, ..CommandError::new(message) }.into());
    };
    // Makes the directory too, in which the root key may have to be made.
    let _lock = acquire(&options.data)?;
    let store = Store::create_in(&database.prepare()?, &open_options(&config, None))?;
    let made = block_on(first_keys(&config, &store));
    store.close();
    print(options, &made??)
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
    let key = Zeroizing::new(key);
    let (status, root_key) = (store.status(), config.vault.root_key.to_string());
    let hosts = store.database_hosts().unwrap_or_default();
    let document = json!({
        "store_id": status.store_id.to_string(),
        "database_hosts": hosts,
        "root_key_id": status.root_key_id.to_string(),
        "root_key": root_key,
        "key": *key,
    });
    let text = format!(
        "Made store {} in the database at {}.\n\
         Every host needs its root key {}, which is in {root_key}.\n\n\
         A key for the workspace `default`, shown this once:\n\n  {}\n\n\
         Start each host with `cofferdam serve`.\n",
        status.store_id,
        hosts.join(", "),
        status.root_key_id,
        *key,
    );
    Ok(CommandOutcome { document, text })
}
