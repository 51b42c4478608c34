//! Checks whether a component fits the contract. Runs before anything is compiled and compares the
//! component's declarations with the text of `wit/` that this host was built with. A refusal is one
//! line with the world, the version and the first difference; wasmtime would only say that some
//! export has the wrong type.

mod bounds;
mod compare;
mod own;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use wit_component::DecodedWasm;
use wit_parser::{InterfaceId, Resolve, WorldId, WorldItem, WorldKey};

use crate::error::{ContractError, OTHER_VERSION};
use crate::manifest::{HookPhase, Import, Manifest, PluginKind};

pub use bounds::COMPONENT_BYTES_MAX;
pub use own::{contract_files, package_name as contract_package};

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
    pub(crate) exports: BTreeSet<Export>,
    /// Names of imported interfaces beyond `log` and `config`.
    pub(crate) imports: BTreeSet<String>,
}

impl Finding {
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
            "remove `import {};` from the world in wit/ and build again",
            own::interface_name(interface)
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

/// Checks a component against this host's contract.
///
/// # Errors
///
/// The first mistake, as one line that says what to do.
pub(crate) fn check(component: &[u8]) -> Result<Finding, ContractError> {
    bounds::check(component)?;
    // The decoder is written for well-formed files. A hostile file may make it panic.
    let decoded = catch_unwind(AssertUnwindSafe(|| wit_component::decode(component)))
        .map_err(|_| ContractError("is damaged: its types cannot be decoded".to_owned()))?
        .map_err(|error| ContractError(format!("is damaged: {}", one_line(&error.to_string()))))?;
    match decoded {
        DecodedWasm::Component(guest, world) => inspect(&guest, world),
        DecodedWasm::WitPackage(..) => {
            Err(ContractError("holds only WIT, no code: give the component built from it".to_owned()))
        }
    }
}

fn inspect(guest: &Resolve, world: WorldId) -> Result<Finding, ContractError> {
    let world = guest
        .worlds
        .get(world)
        .ok_or_else(|| ContractError("is damaged: it declares no world".to_owned()))?;
    let mut finding = Finding { exports: BTreeSet::new(), imports: BTreeSet::new() };
    for (key, item) in &world.exports {
        if let Some(export) = inspect_export(guest, key, item)? {
            finding.exports.insert(export);
        }
    }
    if finding.exports.is_empty() {
        let exported =
            world.exports.keys().map(|key| guest.name_world_key(key)).collect::<Vec<_>>().join(", ");
        return Err(ContractError(format!(
            "is a component of another world: it exports nothing of {} (it exports: {})",
            own::package_name(),
            if exported.is_empty() { "nothing at all" } else { &exported }
        )));
    }
    for (key, item) in &world.imports {
        finding.imports.extend(inspect_import(guest, key, item)?);
    }
    Ok(finding)
}

/// Checks an export. One of the contract's interfaces must match exactly. Other exports are
/// ignored, because toolchains add their own.
fn inspect_export(
    guest: &Resolve,
    key: &WorldKey,
    item: &WorldItem,
) -> Result<Option<Export>, ContractError> {
    let Some(interface) = Interface::of(guest, key, item) else { return Ok(None) };
    if !interface.is_ours {
        return Ok(None);
    }
    let known = Export::ALL.into_iter().find(|export| export.as_str() == interface.name);
    let world = known.map_or("unknown", |export| export.kind().as_str());
    let difference = match known {
        Some(_) => compare::exported(guest, interface.id, &interface.name),
        None => Some(format!("interface {} is not exported by any world of this host", interface.name)),
    };
    interface.verdict(world, difference)?;
    Ok(known)
}

fn inspect_import(
    guest: &Resolve,
    key: &WorldKey,
    item: &WorldItem,
) -> Result<Option<String>, ContractError> {
    let Some(interface) = Interface::of(guest, key, item) else {
        let name = guest.name_world_key(key);
        return Err(ContractError(format!("imports {name:?}, which no host interface has")));
    };
    if !interface.is_ours {
        return interface.check_foreign().map(|()| None);
    }
    let difference = compare::imported(guest, interface.id, &interface.name);
    interface.verdict("any", difference)?;
    Ok(Import::ALL.iter().any(|import| import.brings(&interface.name)).then_some(interface.name))
}

/// An interface of the guest, with its package and version.
struct Interface {
    id: InterfaceId,
    name: String,
    package: String,
    version: Option<(u64, u64, u64)>,
    is_ours: bool,
}

impl Interface {
    fn of(guest: &Resolve, key: &WorldKey, item: &WorldItem) -> Option<Self> {
        let (WorldKey::Interface(_), WorldItem::Interface { id, .. }) = (key, item) else { return None };
        let interface = guest.interfaces.get(*id)?;
        let package = &guest.packages.get(interface.package?)?.name;
        Some(Self {
            id: *id,
            name: interface.name.clone()?,
            package: format!("{}:{}", package.namespace, package.name),
            version: package.version.as_ref().map(|version| (version.major, version.minor, version.patch)),
            is_ours: package.namespace == own::NAMESPACE && package.name == own::NAME,
        })
    }

    /// Compatible means the same major version, and below 1.0 also the same minor version.
    fn is_compatible(&self) -> bool {
        let (major, minor, _) = own::version();
        self.version.is_some_and(|version| version.0 == major && (major > 0 || version.1 == minor))
    }

    fn verdict(&self, world: &str, difference: Option<String>) -> Result<(), ContractError> {
        let compatible = self.is_compatible();
        let reason = match difference {
            None if compatible => return Ok(()),
            Some(difference) if compatible => difference,
            Some(difference) => format!("first difference: {difference}"),
            None => "rebuild it with this host's wit/".to_owned(),
        };
        let verdict = if compatible { "does not match the contract" } else { OTHER_VERSION };
        let theirs = match self.version {
            Some((major, minor, patch)) => format!("{} {major}.{minor}.{patch}", self.package),
            None => format!("{} without a version", self.package),
        };
        let (major, minor, patch) = own::version();
        Err(ContractError(format!(
            "{verdict} (world {world}, {theirs}, this host supports {major}.{minor}.{patch}): {reason}"
        )))
    }

    /// Checks an import of another package. Only the parts of WASI 0.2 that every toolchain imports
    /// are linked.
    fn check_foreign(&self) -> Result<(), ContractError> {
        let linked = ["cli", "clocks", "filesystem", "io", "random", "sockets"];
        let is_wasi = self.package.strip_prefix("wasi:").is_some_and(|name| linked.contains(&name));
        if is_wasi && self.version.is_some_and(|(major, minor, _)| (major, minor) == (0, 2)) {
            return Ok(());
        }
        Err(ContractError(format!(
            "imports {}/{}, which no plugin gets: only WASI 0.2 ({}) is there, and it is empty",
            self.package,
            self.name,
            linked.join(", ")
        )))
    }
}

fn one_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests;
