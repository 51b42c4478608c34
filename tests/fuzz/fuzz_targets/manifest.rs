//! Plugins' manifests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_runtime::fuzzing::manifest(data));
