//! The anchor, with its slots torn.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_store::fuzzing::anchor(data));
