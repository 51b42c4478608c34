//! Answers in the dialect of chat completions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| provider_openai_chat::fuzzing::decode(data));
