//! `store upgrade`. The other commands about the store as a whole make one: see `cli/create.rs`.

use cofferdam_store::Store;
use serde_json::json;

use super::{CommandError, CommandOutcome};

pub(super) fn upgrade(store: &Store) -> Result<CommandOutcome, CommandError> {
    let numbers = store.upgrade_schema()?;
    let document = json!({"schema_before": numbers.map(|it| it.0), "schema": numbers.map(|it| it.1)});
    let text = match numbers {
        None => "The store is in the data directory: there is no schema to upgrade.\n".to_owned(),
        Some((from, to)) if from < to => format!("Upgraded the schema of the store from {from} to {to}.\n"),
        Some((_, to)) => format!("The store has schema {to} already: there is nothing to upgrade.\n"),
    };
    Ok(CommandOutcome { document, text })
}
