//! `plugin wit`: writes the contract that is part of this program.

use std::path::Path;

use cofferdam_runtime::{contract_files, contract_package};
use serde_json::json;

use super::project::{make_folder, write_file};
use crate::command::CommandOutcome;
use crate::failure::Failure;

/// Where a project has the contract.
pub(super) const CONTRACT: &str = "wit/deps/cofferdam-plugin";

/// Writes the files of the contract. Files of the same names are replaced, others are left alone.
pub(super) fn write_to(dir: &Path) -> Result<(), Failure> {
    make_folder(dir)?;
    for (name, text) in contract_files() {
        write_file(&dir.join(name), text.as_bytes())?;
    }
    Ok(())
}

pub(super) fn write_out_to(dir: &Path) -> Result<CommandOutcome, Failure> {
    write_to(dir)?;
    let (package, files) = (contract_package(), contract_files().len());
    Ok(CommandOutcome {
        text: format!("{package}: {files} files in {}\n", dir.display()),
        document: json!({"package": package, "files": files, "dir": dir}),
    })
}
