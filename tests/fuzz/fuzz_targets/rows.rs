//! What lies in the store: rows and their keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cofferdam_store::fuzzing::record(data);
    cofferdam_store::fuzzing::secret_row(data);
    cofferdam_store::fuzzing::row_key(data);
});
