//! `plugin wit`: writes a line of the contract, each of which is part of this program.

use std::path::Path;

use cofferdam_runtime::ContractLine;
use serde_json::json;

use super::project::{make_folder, write_file};
use crate::command::CommandOutcome;
use crate::failure::Failure;

/// Writes the files of a line. Files of the same names are replaced, others are left alone.
pub(super) fn write_to(dir: &Path, line: &ContractLine) -> Result<(), Failure> {
    make_folder(dir)?;
    for (name, text) in line.files() {
        write_file(&dir.join(name), text.as_bytes())?;
    }
    Ok(())
}

pub(super) fn write_out_to(dir: &Path, line: &ContractLine) -> Result<CommandOutcome, Failure> {
    write_to(dir, line)?;
    let (package, files) = (line.package(), line.files().len());
    Ok(CommandOutcome {
        text: format!("{package}: {files} files in {}\n", dir.display()),
        document: json!({"line": line.name(), "package": package, "files": files, "dir": dir}),
    })
}
