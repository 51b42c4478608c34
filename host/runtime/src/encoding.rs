//! Makes a component of a core module, for toolchains that build only those. The world comes from
//! the author's own WIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use wasmparser::Parser;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Why a core module cannot become a component. One line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EncodingError(String);

/// Whether these bytes are a core module.
#[must_use]
pub fn is_core_module(bytes: &[u8]) -> bool {
    Parser::is_core_wasm(bytes)
}

/// The component of a core module, whose imports and exports are named as the canonical ABI names
/// those of `world` in the folder `wit`.
///
/// # Errors
///
/// The WIT cannot be read, or the module lacks an export of the world or has an import that is not in it.
pub fn component_of(module: &[u8], wit: &Path, world: &str) -> Result<Vec<u8>, EncodingError> {
    // The libraries are written for well-formed input, and the module is a build's output.
    catch_unwind(AssertUnwindSafe(|| encode(module, wit, world)))
        .map_err(|_| EncodingError("the module is damaged".to_owned()))?
}

fn encode(module: &[u8], wit: &Path, world: &str) -> Result<Vec<u8>, EncodingError> {
    let blame = |error: String| EncodingError(error.replace('\n', " "));
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).map_err(|error| blame(format!("{error:#}")))?;
    let world = resolve.select_world(&[package], Some(world)).map_err(|error| blame(format!("{error:#}")))?;
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| blame(format!("{error:#}")))?;
    let encoder = ComponentEncoder::default().validate(true).module(&module);
    encoder.and_then(|mut encoder| encoder.encode()).map_err(|error| blame(format!("{error:#}")))
}
