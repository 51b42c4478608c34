//! Paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| cofferdam::fuzzing::route(text));
