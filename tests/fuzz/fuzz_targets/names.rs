//! Names of secrets, beside their pattern.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_egress::fuzzing::name(data));
