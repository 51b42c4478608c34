//! What a component declares: the names and types of its imports and exports. They are read by the validator that
//! the compiler relies on too. It limits the number, size and nesting of types. Libraries that turn a component back
//! into WIT do not: packages that use types of each other let them recurse without end.

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentEntityType, ComponentInstanceType, ComponentItem,
};
use wasmparser::names::{ComponentName, ComponentNameKind};
use wasmparser::types::Types;
use wasmparser::{Parser, Payload, ValidPayload, Validator, WasmFeatures};

use crate::error::ContractError;

/// The longest part of a name or message of the component that an error repeats, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// The declarations of a component.
pub(super) struct Declared {
    pub(super) types: Types,
    /// Names of its imports, in their order.
    pub(super) imports: Vec<String>,
    /// Names of its exports, in their order.
    pub(super) exports: Vec<String>,
}

/// A name such as `wasi:io/poll@0.2.3`, in its parts.
pub(super) struct InterfaceName {
    /// Namespace and name: `wasi:io`.
    pub(super) package: String,
    pub(super) interface: String,
    pub(super) version: Option<String>,
}

impl Declared {
    /// Validates everything but the code of functions.
    pub(super) fn read(component: &[u8]) -> Result<Self, ContractError> {
        let mut validator = Validator::new_with_features(WasmFeatures::all());
        let (mut imports, mut exports) = (Vec::new(), Vec::new());
        let mut depth = 0_usize;
        let mut types = None;
        for payload in Parser::new(0).parse_all(component) {
            let payload = payload.map_err(|error| damaged(&error))?;
            if let ValidPayload::End(ended) = validator.payload(&payload).map_err(|error| damaged(&error))? {
                types = Some(ended);
            }
            match payload {
                Payload::Version { .. } => depth = depth.saturating_add(1),
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => {
                    let names = section.into_iter().map(|import| Ok(import?.name.name.to_owned()));
                    imports.append(&mut names.collect::<Result<_, _>>().map_err(|error| damaged(&error))?);
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    let names = section.into_iter().map(|export| Ok(export?.name.name.to_owned()));
                    exports.append(&mut names.collect::<Result<_, _>>().map_err(|error| damaged(&error))?);
                }
                _ => {}
            }
        }
        // The types of the outermost component end last.
        let types = types.ok_or_else(|| ContractError("is damaged: it does not end".to_owned()))?;
        Ok(Self { types, imports, exports })
    }

    pub(super) fn import(&self, name: &str) -> Option<&ComponentItem> {
        self.types.as_ref().component_item_for_import(name)
    }

    pub(super) fn export(&self, name: &str) -> Option<&ComponentItem> {
        self.types.as_ref().component_item_for_export(name)
    }

    /// The type of an instance; `None` if the item is something else.
    pub(super) fn instance(&self, item: &ComponentItem) -> Option<&ComponentInstanceType> {
        let ComponentEntityType::Instance(id) = item.ty else { return None };
        Some(&self.types[id])
    }

    /// Whether it is WIT in binary form: types of components and nothing else.
    pub(super) fn is_wit(&self) -> bool {
        let is_world = |name: &String| {
            let item = self.export(name);
            item.is_some_and(|item| {
                matches!(item.ty, ComponentEntityType::Type { created: ComponentAnyTypeId::Component(_), .. })
            })
        };
        self.imports.is_empty() && !self.exports.is_empty() && self.exports.iter().all(is_world)
    }
}

/// The parts of a name, if it is that of an interface.
pub(super) fn interface_name(name: &str) -> Option<InterfaceName> {
    let parsed = ComponentName::new(name, 0).ok()?;
    let ComponentNameKind::Interface(parts) = parsed.kind() else { return None };
    Some(InterfaceName {
        package: format!("{}:{}", parts.namespace().as_str(), parts.package().as_str()),
        interface: parts.interface().as_str().to_owned(),
        version: name.split_once('@').map(|(_, version)| version.to_owned()),
    })
}

fn damaged(error: &wasmparser::BinaryReaderError) -> ContractError {
    ContractError(format!("is damaged: {} at byte {}", printable(error.message()), error.offset()))
}

/// A text of the component, for an error of one line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(TEXT_CHARS_MAX).collect()
}
