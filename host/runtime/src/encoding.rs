//! Makes a component of a core module, for toolchains that build only those. The world comes from
//! the author's own WIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use wasmparser::{Parser, Payload};
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
    let mut module = without_worlds(module)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| blame(format!("{error:#}")))?;
    let encoder = ComponentEncoder::default().validate(true).module(&module);
    encoder.and_then(|mut encoder| encoder.encode()).map_err(|error| blame(format!("{error:#}")))
}

/// The module without the worlds that its toolchain or its libraries left in it. They would be merged with the
/// author's, and the library that reads them does not end for packages that use types of each other.
fn without_worlds(module: &[u8]) -> Result<Vec<u8>, EncodingError> {
    let damaged = |error: wasmparser::BinaryReaderError| {
        EncodingError(format!("the module is damaged: {} at byte {}", error.message(), error.offset()))
    };
    let mut kept = Vec::with_capacity(module.len());
    let mut start = 0;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(damaged)?;
        let end = match &payload {
            Payload::Version { range, .. } => range.end,
            payload => match payload.as_section() {
                Some((_, range)) => range.end,
                None => continue,
            },
        };
        let is_world = matches!(&payload, Payload::CustomSection(section) if section.name().starts_with("component-type"));
        if !is_world {
            kept.extend_from_slice(module.get(start..end).unwrap_or_default());
        }
        start = end;
    }
    Ok(kept)
}
