//! Recognises the line that a component is built for, by the names of its exports and imports.

use super::declared::{Declared, printable};
use super::line::{ContractLine, line_of};
use crate::error::ContractError;

/// The line that a component is built for, and the version, by the names of its exports and imports.
/// `None` if none of them is of the contract.
pub(super) fn recognise(
    declared: &Declared,
    lines: &[&'static ContractLine],
) -> Result<Option<(&'static ContractLine, String)>, ContractError> {
    let ours = |name: &String| Some(printable(name.strip_prefix(ContractLine::PACKAGE)?.strip_prefix('/')?));
    let names: Vec<String> = declared.exports.iter().chain(&declared.imports).filter_map(ours).collect();
    let mut names = names.iter().map(String::as_str);
    let Some(first) = names.next() else { return Ok(None) };
    let line = line_of_name(first, lines)?;
    for other in names {
        if !std::ptr::eq(line_of_name(other, lines)?, line) {
            return Err(ContractError(format!(
                "is built for two lines of {}: {first} and {other}; build it again with one copy of the contract",
                ContractLine::PACKAGE
            )));
        }
    }
    let version = first.split_once('@').map(|(_, version)| version.to_owned());
    Ok(Some((line, version.unwrap_or_default())))
}

/// The line among `lines` of an interface such as `tools@0.1.0`.
fn line_of_name(name: &str, lines: &[&'static ContractLine]) -> Result<&'static ContractLine, ContractError> {
    let name = name.split_once('@').map(|(_, version)| line_of(version));
    if let Some(line) = lines.iter().find(|line| name == Some(line.name())) {
        return Ok(line);
    }
    let built_for = name.map_or_else(|| "no line".to_owned(), |name| format!("line {name}"));
    let served: Vec<&str> = lines.iter().map(|line| line.name()).collect();
    Err(ContractError(format!(
        "is built for {built_for} of {}, this host serves {}: cofferdam plugin wit --line {} {}, then build again",
        ContractLine::PACKAGE,
        served.join(" and "),
        served.first().unwrap_or(&""),
        ContractLine::FOLDER
    )))
}
