//! What a component declares, read without compiling it, and whether this host accepts it. For
//! authors of plugins and for operators; the host itself uses [`crate::contract`].

use cofferdam_store::hex;
use sha2::{Digest, Sha256};
use wasmparser::{Instance, Parser, Payload};

use crate::contract::{self, ContractLine};
use crate::error::ContractError;
use crate::limits::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use crate::manifest::{Import, Manifest, PluginKind};

/// Number of imports, and of exports, that are listed.
const NAMES_MAX: usize = 1_000;

/// What a component declares.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// SHA-256 of its bytes, in hexadecimal.
    pub digest: String,
    /// Length in bytes.
    pub bytes: usize,
    /// Names of its imports, in their order.
    pub imports: Vec<String>,
    /// Names of its exports, in their order.
    pub exports: Vec<String>,
    /// What one instance takes of the sandbox, each with the limit.
    pub sandbox: SandboxNeeds,
    /// The kind of plugin it is, and its imports that a manifest asks for, or why this host refuses
    /// it.
    pub verdict: Result<Fit, ContractError>,
    finding: Option<contract::Finding>,
}

/// What a component that fits the contract is.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The line of the contract that it is built for.
    pub line: &'static ContractLine,
    /// The version of the contract that it is built for: one of that line.
    pub version: String,
    /// The kind of plugin that its exports make it.
    pub kind: Option<PluginKind>,
    /// What a manifest has to ask for.
    pub imports: Vec<Import>,
}

/// Core instances, memories and tables of one instance of a component, each with the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SandboxNeeds {
    /// Core instances.
    pub core_instances: u32,
    /// Linear memories.
    pub memories: u32,
    /// Tables.
    pub tables: u32,
}

impl SandboxNeeds {
    /// The most that one component may take.
    pub const LIMITS: Self =
        Self { core_instances: CORE_INSTANCES_MAX, memories: MEMORIES_MAX, tables: TABLES_MAX };

    /// Whether an instance fits into the sandbox.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.core_instances <= Self::LIMITS.core_instances
            && self.memories <= Self::LIMITS.memories
            && self.tables <= Self::LIMITS.tables
    }

    fn add(&mut self, more: Self) {
        self.core_instances = self.core_instances.saturating_add(more.core_instances);
        self.memories = self.memories.saturating_add(more.memories);
        self.tables = self.tables.saturating_add(more.tables);
    }
}

impl Inspection {
    /// Reads a component. What cannot be read is left out; the verdict then says why.
    #[must_use]
    pub fn of(component: &[u8]) -> Self {
        let checked = contract::check(component, ContractLine::SERVED);
        let mut declared = Declared::default();
        if Parser::is_component(component) {
            declared.read(component);
        }
        let finding = checked.as_ref().ok().map(|(_, finding)| finding.clone());
        Self {
            digest: Self::digest_of(component),
            bytes: component.len(),
            imports: declared.imports,
            exports: declared.exports,
            sandbox: declared.needs,
            verdict: checked.map(|(line, finding)| Fit {
                line,
                kind: finding.kind(),
                imports: finding.used().into_iter().collect(),
                version: finding.version,
            }),
            finding,
        }
    }

    /// SHA-256 of some bytes, in hexadecimal.
    #[must_use]
    pub fn digest_of(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    /// Checks that the component is what its manifest says, as loading it does.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn suits(&self, manifest: &Manifest) -> Result<(), ContractError> {
        match (&self.finding, &self.verdict) {
            (Some(finding), _) => finding.suits(manifest),
            (None, Err(error)) => Err(error.clone()),
            (None, Ok(_)) => Ok(()),
        }
    }

    /// The first interface that the component imports and its manifest does not ask for.
    #[must_use]
    pub fn unasked(&self, manifest: &Manifest) -> Option<&str> {
        self.finding.as_ref()?.unasked(manifest).map(|(interface, _)| interface)
    }
}

#[derive(Default)]
struct Declared {
    imports: Vec<String>,
    exports: Vec<String>,
    needs: SandboxNeeds,
}

/// One component or module that is being read, within others.
#[derive(Default)]
struct Frame {
    /// Memories and tables of the modules that are declared so far.
    modules: Vec<SandboxNeeds>,
    /// For a module: what it defines itself.
    own: SandboxNeeds,
}

impl Frame {
    /// What a core instance takes; `None` for one that only groups exports.
    fn needs_of(&self, instance: &Instance<'_>) -> Option<SandboxNeeds> {
        let Instance::Instantiate { module_index, .. } = instance else { return None };
        let module = self.modules.get(*module_index as usize).copied();
        Some(module.unwrap_or_else(|| SandboxNeeds { core_instances: 1, ..SandboxNeeds::default() }))
    }
}

/// Ends the innermost component or module. Only a module takes an index among the modules of the
/// component around it.
fn close(frames: &mut Vec<Frame>) {
    let Some(Frame { own, .. }) = frames.pop() else { return };
    if own.core_instances > 0
        && let Some(outer) = frames.last_mut()
    {
        outer.modules.push(own);
    }
}

impl Declared {
    /// Reads to the end, or to the first damage.
    fn read(&mut self, component: &[u8]) {
        let mut frames: Vec<Frame> = Vec::new();
        for payload in Parser::new(0).parse_all(component) {
            let Ok(payload) = payload else { return };
            if matches!(payload, Payload::End(_)) {
                close(&mut frames);
                continue;
            }
            if matches!(payload, Payload::Version { .. }) {
                frames.push(Frame::default());
            }
            let depth = frames.len();
            if let Some(frame) = frames.last_mut() {
                self.take(&payload, frame, depth);
            }
        }
    }

    fn take(&mut self, payload: &Payload<'_>, frame: &mut Frame, depth: usize) {
        match payload {
            // One core instance for each instantiation.
            Payload::Version { encoding: wasmparser::Encoding::Module, .. } => frame.own.core_instances = 1,
            Payload::MemorySection(section) => frame.own.memories += section.count(),
            Payload::TableSection(section) => frame.own.tables += section.count(),
            Payload::InstanceSection(section) => {
                let instances = section.clone().into_iter().flatten();
                instances
                    .filter_map(|instance| frame.needs_of(&instance))
                    .for_each(|needs| self.needs.add(needs));
            }
            Payload::ComponentImportSection(section) if depth == 1 => {
                let names = section.clone().into_iter().flatten().map(|import| import.name.name.to_owned());
                self.imports.extend(names.take(NAMES_MAX));
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                let names = section.clone().into_iter().flatten().map(|export| export.name.name.to_owned());
                self.exports.extend(names.take(NAMES_MAX));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_an_instance_takes() {
        let text = "(component (core module $m (memory 1) (table 1 funcref)) (core module $e)
            (core instance (instantiate $m)) (core instance (instantiate $e)) (core instance (instantiate $m)))";
        let inspection = Inspection::of(&wat::parse_str(text).unwrap());
        assert_eq!(inspection.sandbox, SandboxNeeds { core_instances: 3, memories: 2, tables: 2 });
        assert!(inspection.sandbox.fits() && inspection.verdict.is_err());
    }

    #[test]
    fn damage_is_no_panic() {
        let whole =
            wat::parse_str("(component (core module $m (memory 1)) (core instance (instantiate $m)))");
        let whole = whole.unwrap();
        for length in 0..whole.len() {
            assert!(Inspection::of(&whole[..length]).verdict.is_err());
        }
    }
}
