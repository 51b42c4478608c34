//! `Forwarded` and `X-Forwarded-For`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam::fuzzing::forwarded(data));
