//! Taking two values, in any spelling, out of a text, in one piece and in many.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_egress::fuzzing::scrub(data));
