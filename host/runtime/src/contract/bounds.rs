//! Limits on what is passed to the compiler. The compiler's developers do not treat slow
//! compilation as a bug, so components that could be slow to compile are refused before.

use wasmparser::{Encoding, Parser, Payload};

use crate::error::ContractError;

/// Length limit of a component, in bytes.
pub const COMPONENT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Sections of all nested modules and components together.
const SECTIONS_MAX: usize = 20_000;
/// Core modules and nested components.
const MODULES_MAX: usize = 64;
const COMPONENTS_MAX: usize = 64;
/// Functions of all modules together. An interpreter has about 30,000.
const FUNCTIONS_MAX: usize = 200_000;
/// Size of one function in bytes. Generated parsers and interpreters reach a tenth of this.
const FUNCTION_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Entries of one section of types, imports, exports, globals, elements or data.
const ENTRIES_MAX: u32 = 200_000;
/// Core instances and component instances, wherever they are declared.
const INSTANCES_MAX: u32 = 1_000;

#[derive(Default)]
struct ContractCounts {
    sections: usize,
    modules: usize,
    components: usize,
    functions: usize,
    instances: u32,
}

/// Refuses files that are not components, and components that are too large.
pub(super) fn check(bytes: &[u8]) -> Result<(), ContractError> {
    check_kind(bytes)?;
    let mut counts = ContractCounts::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| {
            let message = error.message().lines().next().unwrap_or_default();
            refuse(format!("is damaged: {message} at byte {}", error.offset()))
        })?;
        count(&mut counts, &payload)?;
        counts.check()?;
    }
    Ok(())
}

fn check_kind(bytes: &[u8]) -> Result<(), ContractError> {
    if bytes.is_empty() {
        return Err(refuse("is empty: copy the component again".to_owned()));
    }
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(refuse(format!("has {} bytes, at most {COMPONENT_BYTES_MAX} are accepted", bytes.len())));
    }
    if Parser::is_core_wasm(bytes) {
        return Err(refuse("is a core module: build a component (target wasm32-wasip2)".to_owned()));
    }
    if !Parser::is_component(bytes) {
        return Err(refuse("is not WebAssembly: give a component (target wasm32-wasip2)".to_owned()));
    }
    Ok(())
}

fn count(counts: &mut ContractCounts, payload: &Payload<'_>) -> Result<(), ContractError> {
    counts.sections += 1;
    let entries = match payload {
        Payload::Version { encoding: Encoding::Module, .. } => {
            counts.modules += 1;
            0
        }
        Payload::Version { encoding: Encoding::Component, .. } => {
            counts.components += 1;
            0
        }
        Payload::CodeSectionEntry(body) => {
            counts.functions += 1;
            // Functions have a limit of their own and are not counted as sections.
            counts.sections -= 1;
            let length = body.range().len();
            if length > FUNCTION_BYTES_MAX {
                return Err(refuse(format!(
                    "has a function of {length} bytes, at most {FUNCTION_BYTES_MAX}"
                )));
            }
            0
        }
        Payload::InstanceSection(section) => counts.instances(section.count()),
        Payload::ComponentInstanceSection(section) => counts.instances(section.count()),
        Payload::TypeSection(section) => section.count(),
        Payload::CoreTypeSection(section) => section.count(),
        Payload::ComponentTypeSection(section) => section.count(),
        Payload::ImportSection(section) => section.count(),
        Payload::ExportSection(section) => section.count(),
        Payload::GlobalSection(section) => section.count(),
        Payload::ElementSection(section) => section.count(),
        Payload::DataSection(section) => section.count(),
        Payload::ComponentImportSection(section) => section.count(),
        Payload::ComponentExportSection(section) => section.count(),
        Payload::ComponentAliasSection(section) => section.count(),
        Payload::ComponentCanonicalSection(section) => section.count(),
        _ => 0,
    };
    if entries > ENTRIES_MAX {
        return Err(refuse(format!(
            "has a section of {entries} entries, at most {ENTRIES_MAX} are accepted"
        )));
    }
    Ok(())
}

impl ContractCounts {
    fn instances(&mut self, more: u32) -> u32 {
        self.instances = self.instances.saturating_add(more);
        more
    }

    fn check(&self) -> Result<(), ContractError> {
        let counts = [
            ("sections", self.sections, SECTIONS_MAX),
            ("core modules", self.modules, MODULES_MAX),
            ("nested components", self.components, COMPONENTS_MAX),
            ("functions", self.functions, FUNCTIONS_MAX),
            ("instances", self.instances as usize, INSTANCES_MAX as usize),
        ];
        match counts.into_iter().find(|(_, count, most)| count > most) {
            Some((what, _, most)) => Err(refuse(format!("has too many {what}: at most {most} are accepted"))),
            None => Ok(()),
        }
    }
}

fn refuse(reason: String) -> ContractError {
    ContractError(reason)
}
