//! Bodies of requests for responses and embeddings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_engine::fuzzing::request(data));
