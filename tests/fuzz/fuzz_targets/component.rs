//! Components from anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_runtime::fuzzing::component(data));
