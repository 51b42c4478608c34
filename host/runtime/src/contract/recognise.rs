//! Recognises the line that a component is built for, by the names of its exports and imports. No type
//! is decoded for it.

use wasmparser::{BinaryReaderError, Parser, Payload};

use super::line::{ContractLine, line_of};
use crate::error::ContractError;

/// The longest part of a name that an error repeats.
const NAME_CHARS_MAX: usize = 100;

/// The line that a component is built for, and the version, by the names of its exports and imports.
/// `None` if none of them is of the contract.
pub(super) fn recognise(
    component: &[u8],
    lines: &[&'static ContractLine],
) -> Result<Option<(&'static ContractLine, String)>, ContractError> {
    let names = contract_names(component)
        .map_err(|error| ContractError(format!("is damaged: {}", error.message())))?;
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

/// Names of the contract's interfaces that a component exports and imports, such as `tools@0.1.0`.
fn contract_names(component: &[u8]) -> Result<Vec<String>, BinaryReaderError> {
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    let mut depth = 0_usize;
    let ours = |name: &str| Some(printable(name.strip_prefix(ContractLine::PACKAGE)?.strip_prefix('/')?));
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::Version { .. } => depth = depth.saturating_add(1),
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.extend(ours(export?.name.name));
                }
            }
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.extend(ours(import?.name.name));
                }
            }
            _ => {}
        }
    }
    exports.append(&mut imports);
    Ok(exports)
}

/// A name of the component for an error of one line. Names are not validated before the types are
/// decoded.
fn printable(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(NAME_CHARS_MAX).collect()
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
