//! The configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam::fuzzing::config(data));
