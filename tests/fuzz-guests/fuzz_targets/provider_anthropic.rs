//! Answers in Anthropic's dialect.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| provider_anthropic::fuzzing::decode(data));
