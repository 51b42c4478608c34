//! Arguments of commands at the admin API.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam::fuzzing::arguments(data));
