//! Providers' streams, cut into reads.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_engine::fuzzing::framing(data));
