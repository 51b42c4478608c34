//! Paths of providers' plugins.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_egress::fuzzing::guest_path(data));
