//! Host names, beside what a client makes of them that dials.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_egress::fuzzing::host(data));
