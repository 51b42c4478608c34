//! Paths of requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam::fuzzing::route(data));
