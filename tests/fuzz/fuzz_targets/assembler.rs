//! Events of guests: every stream is valid.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_engine::fuzzing::assembler(data));
