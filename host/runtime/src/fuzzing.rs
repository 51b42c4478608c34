//! Entry points for the fuzz targets in `tests/fuzz`, for `--cfg fuzzing` and the tests below. Each takes arbitrary
//! input and panics when a guarantee does not hold.

use std::time::Duration;

use crate::code::Code;
use crate::inspection::Inspection;
use crate::manifest::{MEMORY_MIB_MAX, Manifest};
use crate::recording::Recording;

/// A plugin's manifest: what is accepted is bounded, and a mistake names its line.
pub fn manifest(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Manifest::parse(text) {
        Ok(manifest) => {
            assert!(!manifest.component.contains(['/', '\\', '\0']), "{}", manifest.component);
            assert!((1..=64).contains(&manifest.name.len()), "{}", manifest.name);
            assert!((1..=MEMORY_MIB_MAX).contains(&manifest.memory_mib()));
            assert!(manifest.deadline() > Duration::ZERO);
        }
        Err(error) => {
            assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error}");
            assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{error}");
        }
    }
}

/// A recording of a guest's call, which an author was given.
pub fn recording(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Recording::parse(text) {
        Ok(recording) => {
            recording.imports().for_each(|import| drop(import.answer::<serde_json::Value>()));
            drop((recording.first_call().is_some(), recording.first_function(), recording.first_input(0)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A component from anywhere: it is inspected, and compiled if it is one of the contract's. Hostile bytes make the
/// decoder of its types panic, which the loader catches.
pub fn component(data: &[u8]) {
    // libFuzzer takes each panic for a finding, also a caught one; one that is not caught still ends the process.
    #[cfg(fuzzing)]
    std::panic::set_hook(Box::new(|_| {}));
    let found = Inspection::of(data);
    match &found.verdict {
        Ok(fit) => {
            assert!(fit.kind.is_some() || !found.exports.is_empty());
            // What is too large for the sandbox is refused before it is compiled; the rest compiles or is invalid.
            if found.sandbox.fits() {
                drop(Code::compile(data, false).map(|code| assert!(!code.bytes().is_empty())));
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

#[cfg(test)]
mod tests {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.rs"));

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        each_of("manifest", super::manifest);
        each_of("recording", super::recording);
        each_of("component", super::component);
    }
}
