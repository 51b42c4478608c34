//! Requests of guests with placeholders.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_egress::fuzzing::placeholder(data));
