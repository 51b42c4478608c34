//! The header `traceparent`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_engine::fuzzing::trace_parent(data));
