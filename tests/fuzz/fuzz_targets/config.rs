//! The configuration file: a configuration, or mistakes with their places.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| cofferdam::fuzzing::config(text));
