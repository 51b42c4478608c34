//! Checks whether a component fits the contract. Runs before anything is compiled. The version in the
//! names of its imports and exports says for which line of the contract the component is built. Its
//! declarations are compared with the text of that line. A refusal is one line of text with the
//! world, the version and the first difference; wasmtime would only say that some export has the
//! wrong type.

mod bounds;
mod compare;
mod declared;
mod line;
mod recognise;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use wasmparser::component_types::{ComponentInstanceType, ComponentItem};

use crate::error::ContractError;
use crate::manifest::{HookPhase, Import, Manifest, PluginKind};

use compare::Difference;
use declared::{Declared, InterfaceName, interface_name, printable};

pub use bounds::COMPONENT_BYTES_MAX;
pub use line::ContractLine;

/// Exports of a component of another world that its refusal names.
const NAMES_TOLD_MAX: usize = 20;

/// An interface that a guest may export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Export {
    Routing,
    ModelChoice,
    Dialect,
    Generation,
    Embedding,
    OnRequest,
    OnResponse,
    Tools,
}

impl Export {
    const ALL: [Self; 8] = [
        Self::Routing,
        Self::ModelChoice,
        Self::Dialect,
        Self::Generation,
        Self::Embedding,
        Self::OnRequest,
        Self::OnResponse,
        Self::Tools,
    ];

    /// The name of the interface in `wit/`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Routing => "routing",
            Self::ModelChoice => "model-choice",
            Self::Dialect => "dialect",
            Self::Generation => "generation",
            Self::Embedding => "embedding",
            Self::OnRequest => HookPhase::OnRequest.as_str(),
            Self::OnResponse => HookPhase::OnResponse.as_str(),
            Self::Tools => "tools",
        }
    }

    /// The kind of plugin that exports the interface.
    fn kind(self) -> PluginKind {
        match self {
            Self::Routing | Self::ModelChoice => PluginKind::Router,
            Self::Dialect | Self::Generation | Self::Embedding => PluginKind::Provider,
            Self::OnRequest | Self::OnResponse => PluginKind::Hook,
            Self::Tools => PluginKind::Tool,
        }
    }
}

/// The exports and imports of a component that fits the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// The version of the contract that the component is built for.
    pub(crate) version: String,
    pub(crate) exports: BTreeSet<Export>,
    /// Names of imported interfaces beyond `log` and `config`.
    pub(crate) imports: BTreeSet<String>,
}

impl Finding {
    /// The line that the component is built for, if it is one of these.
    pub(crate) fn line(&self, lines: &[&'static ContractLine]) -> Option<&'static ContractLine> {
        let name = line::line_of(&self.version);
        lines.iter().copied().find(|line| line.name() == name)
    }

    /// The optional imports that the component uses.
    pub(crate) fn used(&self) -> BTreeSet<Import> {
        let is_used = |import: &Import| self.imports.iter().any(|interface| import.brings(interface));
        Import::ALL.into_iter().filter(is_used).collect()
    }

    /// The kind of plugin that its exports make it.
    pub(crate) fn kind(&self) -> Option<PluginKind> {
        self.exports.first().map(|export| export.kind())
    }

    /// Checks that the component exports what its manifest declares, and imports no more than it
    /// asks for.
    pub(crate) fn suits(&self, manifest: &Manifest) -> Result<(), ContractError> {
        if let Some(other) = self.exports.iter().find(|export| export.kind() != manifest.kind) {
            return Err(ContractError(format!(
                "the manifest says kind = \"{}\", but the component is a {}: it exports {}",
                manifest.kind,
                other.kind(),
                other.as_str()
            )));
        }
        let missing = match manifest.kind {
            PluginKind::Router => self.missing(&[Export::Routing]),
            PluginKind::Provider if !self.exports.contains(&Export::Generation) => {
                self.missing(&[Export::Dialect, Export::Embedding])
            }
            PluginKind::Provider => self.missing(&[Export::Dialect]),
            PluginKind::Hook => self.missing_phase(manifest),
            PluginKind::Tool => self.missing(&[Export::Tools]),
        };
        match missing {
            Some(export) => Err(ContractError(format!(
                "the manifest says kind = \"{}\", but the component does not export the interface {}",
                manifest.kind,
                export.as_str()
            ))),
            None => self.asks_for_all_imports(manifest),
        }
    }

    /// Toolchains of interpreted languages import whatever the world names, used or not. No grant
    /// can give what the manifest does not ask for, so only the author can mend this.
    fn asks_for_all_imports(&self, manifest: &Manifest) -> Result<(), ContractError> {
        let Some((interface, import)) = self.unasked(manifest) else { return Ok(()) };
        let remove = format!(
            "remove `import {}/{interface}@{};` from the world in wit/ and build again",
            ContractLine::PACKAGE,
            self.version
        );
        let mend = if manifest.kind.optional_imports().contains(&import) {
            let asked: Vec<_> =
                manifest.imports.iter().chain([&import]).map(|name| format!("\"{name}\"")).collect();
            format!("set `imports = [{}]` in the manifest, or {remove}", asked.join(", "))
        } else {
            format!("a {} cannot have it: {remove}", manifest.kind)
        };
        Err(ContractError(format!("imports {interface}, which its manifest does not ask for: {mend}")))
    }

    /// The first imported interface that the manifest does not ask for.
    pub(crate) fn unasked(&self, manifest: &Manifest) -> Option<(&str, Import)> {
        self.imports.iter().find_map(|interface| {
            let import = Import::ALL.into_iter().find(|import| import.brings(interface))?;
            (!manifest.imports.contains(&import)).then_some((interface.as_str(), import))
        })
    }

    fn missing(&self, required: &[Export]) -> Option<Export> {
        required.iter().copied().find(|export| !self.exports.contains(export))
    }

    fn missing_phase(&self, manifest: &Manifest) -> Option<Export> {
        let phases = manifest.hook.iter().flat_map(|hook| &hook.phases);
        let required: Vec<_> = phases
            .map(|phase| match phase {
                HookPhase::OnRequest => Export::OnRequest,
                HookPhase::OnResponse => Export::OnResponse,
            })
            .collect();
        self.missing(&required)
    }
}

/// Checks a component against these lines of the contract, the newest first. Returns the line that
/// it is built for.
///
/// # Errors
///
/// The first mistake, as one line that says what to do.
pub(crate) fn check(
    component: &[u8],
    lines: &[&'static ContractLine],
) -> Result<(&'static ContractLine, Finding), ContractError> {
    bounds::check(component)?;
    let declared = Declared::read(component)?;
    if declared.is_wit() {
        return Err(ContractError("holds only WIT, no code: give the component built from it".to_owned()));
    }
    let recognised = recognise::recognise(&declared, lines)?;
    let Some((line, version)) = recognised else { return Err(is_of_another_world(&declared)) };
    let (mut exports, mut imports) = (BTreeSet::new(), BTreeSet::new());
    for name in &declared.exports {
        exports.extend(inspect_export(&declared, name, line)?);
    }
    if exports.is_empty() {
        return Err(is_of_another_world(&declared));
    }
    for name in &declared.imports {
        imports.extend(inspect_import(&declared, name, line)?);
    }
    Ok((line, Finding { version, exports, imports }))
}

fn is_of_another_world(declared: &Declared) -> ContractError {
    let exported = declared.exports.iter().take(NAMES_TOLD_MAX).map(|name| printable(name));
    let exported = exported.collect::<Vec<_>>().join(", ");
    ContractError(format!(
        "is a component of another world: it exports nothing of {} (it exports: {})",
        ContractLine::PACKAGE,
        if exported.is_empty() { "nothing at all" } else { &exported }
    ))
}

/// Checks an export. One of the contract's interfaces must match exactly. Other exports are
/// ignored, because toolchains add their own.
fn inspect_export(
    declared: &Declared,
    name: &str,
    line: &ContractLine,
) -> Result<Option<Export>, ContractError> {
    let interface = Interface::of(declared, name, declared.export(name));
    let Some(interface) = interface.filter(Interface::is_ours) else { return Ok(None) };
    let known = Export::ALL.into_iter().find(|export| export.as_str() == interface.name.interface);
    let world = known.map_or("unknown", |export| export.kind().as_str());
    let difference = match known {
        Some(_) => compare::exported(declared, interface.instance, &interface.name.interface, line),
        None => {
            Some(format!("interface {} is not exported by any world of this host", interface.name.interface))
        }
    };
    interface.verdict(world, difference, line)?;
    Ok(known)
}

fn inspect_import(
    declared: &Declared,
    name: &str,
    line: &ContractLine,
) -> Result<Option<String>, ContractError> {
    let Some(interface) = Interface::of(declared, name, declared.import(name)) else {
        return Err(ContractError(format!("imports {:?}, which no host interface has", printable(name))));
    };
    if !interface.is_ours() {
        return interface.check_foreign().map(|()| None);
    }
    let name = interface.name.interface.clone();
    let difference = compare::imported(declared, interface.instance, &name, line);
    interface.verdict("any", difference, line)?;
    Ok(Import::ALL.iter().any(|import| import.brings(&name)).then_some(name))
}

/// An interface of the guest, with its declaration.
struct Interface<'a> {
    name: InterfaceName,
    instance: &'a ComponentInstanceType,
}

impl<'a> Interface<'a> {
    fn of(declared: &'a Declared, name: &str, item: Option<&'a ComponentItem>) -> Option<Self> {
        Some(Self { name: interface_name(name)?, instance: declared.instance(item?)? })
    }

    fn is_ours(&self) -> bool {
        self.name.package == ContractLine::PACKAGE
    }

    fn verdict(&self, world: &str, difference: Difference, line: &ContractLine) -> Result<(), ContractError> {
        let Some(difference) = difference else { return Ok(()) };
        let (package, ours) = (&self.name.package, line.version());
        let theirs = self.name.version.as_deref().unwrap_or_default();
        let mend = if line::is_newer(theirs, ours) {
            format!(
                "; run a host that has {theirs}, or do without it: cofferdam plugin wit --line {} {}, then build \
                 again",
                line.name(),
                ContractLine::FOLDER
            )
        } else {
            String::new()
        };
        Err(ContractError(format!(
            "does not match the contract (world {world}, {package} {theirs}, this host supports {ours}): \
             {difference}{mend}"
        )))
    }

    /// Checks an import of another package. Only the parts of WASI 0.2 that every toolchain imports
    /// are linked.
    fn check_foreign(&self) -> Result<(), ContractError> {
        let linked = ["cli", "clocks", "filesystem", "io", "random", "sockets"];
        let InterfaceName { package, interface, version } = &self.name;
        let is_wasi = package.strip_prefix("wasi:").is_some_and(|name| linked.contains(&name));
        if is_wasi && version.as_deref().map(line::line_of) == Some("0.2") {
            return Ok(());
        }
        Err(ContractError(format!(
            "imports {}/{}, which no plugin gets: only WASI 0.2 ({}) is there, and it is empty",
            printable(package),
            printable(interface),
            linked.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests;
