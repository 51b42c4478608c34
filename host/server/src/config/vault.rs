//! `[vault]`: the root key, and whether vault routes answer at all.

use std::path::Path;

use cofferdam_store::RootKeySource;

use super::document::Table;

/// The root key of the store.
#[derive(Debug, Clone)]
pub struct Vault {
    /// False: every vault route answers 503.
    pub enabled: bool,
    /// Where the root key comes from.
    pub root_key: RootKeySource,
}

pub(super) fn read(table: &Table<'_>, data: &Path) -> Vault {
    let default = RootKeySource::File(data.join("root.key"));
    let root_key = match table.text("root_key") {
        None => default,
        Some(written) => match written.value.parse() {
            Ok(RootKeySource::File(path)) => RootKeySource::File(table.directory().join(path)),
            Ok(source) => source,
            Err(_) => {
                written.reject("expected file:PATH, env:NAME, fd:N or passphrase:SOURCE");
                default
            }
        },
    };
    Vault { enabled: table.flag("enabled"), root_key }
}
