//! Taking two values out of a text, in one piece and in many.
#![no_main]

use bytes::Bytes;
use cofferdam_egress::ScrubSet;

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8], &[u8], &[u8])| {
    let (one, two, text, cuts) = input;
    let values = [("one", Bytes::copy_from_slice(one)), ("two", Bytes::copy_from_slice(two))];
    let set = ScrubSet::new(values);
    let whole = set.scrub(text).map_or_else(|| text.to_vec(), |(clean, _)| clean);
    for value in [one, two] {
        let is_there = value.len() >= 8 && whole.windows(value.len()).any(|window| window == value);
        // A label may be, or make, what looks like a value.
        let is_of_a_label = whole.windows(8).any(|window| window == b"[secret:");
        assert!(!is_there || is_of_a_label);
    }
    let (mut scrubber, mut given, mut rest) = (set.scrubber(), Vec::new(), Bytes::copy_from_slice(text));
    for cut in cuts {
        let piece = rest.split_to(usize::from(*cut).min(rest.len()));
        given.extend_from_slice(&scrubber.push(piece));
    }
    given.extend_from_slice(&scrubber.push(rest));
    given.extend_from_slice(&scrubber.finish());
    assert_eq!(given, whole);
});
