//! Bodies of PUT and copy, and the queries of listings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cofferdam::fuzzing::put(data);
    cofferdam::fuzzing::copy(data);
    if let Ok(text) = std::str::from_utf8(data) {
        cofferdam::fuzzing::query(text);
    }
});
