//! Components made from text, for cases that no ordinary toolchain builds. All functions of a world
//! have the same body, unless another one is given.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{
    Function, LiftLowerAbi, ManglingAndAbi, Resolve, SourceMap, WasmExport, WasmExportKind, WasmImport,
    WorldId, WorldItem, WorldKey,
};

pub(crate) const TRAP: &str = "unreachable";
pub(crate) const LOOP: &str = "(loop $again (br $again)) unreachable";

/// The text of the contract without its comments, or a changed copy of it.
pub(crate) struct Wit(Vec<(String, String)>);

impl Wit {
    pub(crate) fn own() -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("///"));
            let code: String = code.flat_map(|line| [line, "\n"]).collect();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), code)
        };
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(read).collect();
        files.sort();
        Self(files)
    }

    /// Replaces all occurrences of `from` by `to`. There must be at least one.
    pub(crate) fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.0.iter().any(|(_, text)| text.contains(from)), "{from:?} is not in wit/");
        for (_, text) in &mut self.0 {
            *text = text.replace(from, to);
        }
        self
    }

    /// The files, to make a line of the contract of them.
    pub(crate) fn files(self) -> &'static [(&'static str, &'static str)] {
        let leak = |text: String| -> &'static str { text.leak() };
        let files: Vec<_> = self.0.into_iter().map(|(name, text)| (leak(name), leak(text))).collect();
        files.leak()
    }

    fn resolve(&self) -> (Resolve, Vec<WorldId>) {
        let mut sources = SourceMap::new();
        for (name, text) in &self.0 {
            sources.push_str(name, text);
        }
        let mut resolve = Resolve::default();
        let package = resolve.push_group(sources.parse().map_err(|(_, error)| error).unwrap()).unwrap();
        let worlds = resolve.packages[package].worlds.values().copied().collect();
        (resolve, worlds)
    }
}

/// Builds a component.
pub(crate) struct Rogue {
    wit: Wit,
    world: String,
    body: String,
    bodies: Vec<(String, String)>,
    realloc: String,
    imports: String,
    extra: String,
    memory: String,
    imports_all: bool,
}

impl Rogue {
    pub(crate) fn of(world: &str) -> Self {
        Self {
            wit: Wit::own(),
            world: world.into(),
            body: TRAP.into(),
            bodies: vec![],
            realloc: "i32.const 65536".into(),
            imports: String::new(),
            extra: String::new(),
            memory: "(memory (export \"memory\") 32)".into(),
            imports_all: false,
        }
    }

    pub(crate) fn wit(mut self, wit: Wit) -> Self {
        self.wit = wit;
        self
    }

    /// Sets the body of all exported functions.
    pub(crate) fn doing(mut self, body: &str) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body of the functions whose names end with `name`.
    pub(crate) fn with_body(mut self, name: &str, body: &str) -> Self {
        self.bodies.push((name.into(), body.into()));
        self
    }

    pub(crate) fn realloc(mut self, body: &str) -> Self {
        self.realloc = body.into();
        self
    }

    /// Adds fields to the module: a start function, data, memories.
    pub(crate) fn plus(mut self, fields: &str) -> Self {
        self.extra.push_str(fields);
        self
    }

    /// Adds core imports, which must be first in a module.
    pub(crate) fn importing(mut self, imports: &str) -> Self {
        self.imports = imports.into();
        self
    }

    /// Imports all functions that the world imports.
    pub(crate) fn importing_all(mut self) -> Self {
        self.imports_all = true;
        self
    }

    pub(crate) fn memory(mut self, field: &str) -> Self {
        self.memory = field.into();
        self
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let (resolve, world) = self.resolve();
        let mut module = self.module();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    fn resolve(&self) -> (Resolve, WorldId) {
        let (resolve, worlds) = self.wit.resolve();
        let world = worlds.into_iter().find(|id| resolve.worlds[*id].name == self.world).unwrap();
        (resolve, world)
    }

    /// The core module, from which a component can be made.
    pub(crate) fn module(&self) -> Vec<u8> {
        let (resolve, world) = self.resolve();
        let all = if self.imports_all { Self::all_imports(&resolve, world) } else { String::new() };
        let mut text = format!("(module {all} {} {} {}", self.imports, self.memory, self.extra);
        text.push_str(&format!(
            "(func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) {})",
            self.realloc
        ));
        for (key, item) in &resolve.worlds[world].exports {
            let WorldItem::Interface { id, .. } = item else { continue };
            for function in resolve.interfaces[*id].functions.values() {
                text.push_str(&self.function(&resolve, key, function));
            }
        }
        text.push(')');
        wat::parse_str(&text).unwrap()
    }

    /// Imports of all functions that the world imports.
    fn all_imports(resolve: &Resolve, world: WorldId) -> String {
        let mangling = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
        let mut text = String::new();
        for (key, item) in &resolve.worlds[world].imports {
            let WorldItem::Interface { id, .. } = item else { continue };
            for function in resolve.interfaces[*id].functions.values() {
                let import = WasmImport::Func { interface: Some(key), func: function };
                let (module, name) = resolve.wasm_import_name(mangling, import);
                let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
                let (params, results) = (types(&signature.params), types(&signature.results));
                text.push_str(&format!(
                    "(import {module:?} {name:?} (func (param {params}) (result {results})))"
                ));
            }
        }
        text
    }

    fn function(&self, resolve: &Resolve, key: &WorldKey, function: &Function) -> String {
        let mangling = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
        let kind = WasmExportKind::Normal;
        let export = WasmExport::Func { interface: Some(key), func: function, kind };
        let name = resolve.wasm_export_name(mangling, export);
        let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
        let own = self.bodies.iter().find(|(suffix, _)| name.ends_with(suffix.as_str()));
        let body = own.map_or(&self.body, |(_, body)| body);
        format!(
            "(func (export {name:?}) (param {}) (result {}) {body})",
            types(&signature.params),
            types(&signature.results)
        )
    }
}

fn types(types: &[WasmType]) -> String {
    types.iter().map(|ty| wasm_type(*ty)).collect::<Vec<_>>().join(" ")
}

fn wasm_type(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}
