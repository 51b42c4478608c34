//! Bodies of PUT and copy, and the queries of listings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cofferdam::fuzzing::put(data);
    cofferdam::fuzzing::copy(data);
    cofferdam::fuzzing::query(data);
});
