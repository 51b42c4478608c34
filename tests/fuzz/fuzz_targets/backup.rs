//! A backup from anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_store::fuzzing::backup(data));
