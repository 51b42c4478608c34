//! Answers in the dialect of the Responses API.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| provider_openai_responses::fuzzing::decode(data));
