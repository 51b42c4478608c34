use proptest::prelude::*;

use super::*;

/// A value with all characters that libraries escape.
const AWKWARD: &str = "s3cr/et+\"va'lue\\ <&>=`~!(*)";
const TOKEN: &str = "ghp_abcDEF0123456789-xyz.Q~";

fn set_of(values: &[&str]) -> ScrubSet {
    let names = ["one", "two", "three", "four"];
    ScrubSet::new(
        names.into_iter().zip(values).map(|(name, value)| (name, Bytes::copy_from_slice(value.as_bytes()))),
    )
}

/// All spellings of a text that the search knows.
fn spellings(value: &str) -> Vec<Vec<u8>> {
    super::spellings(value.as_bytes())
}

fn scrub(set: &ScrubSet, text: &[u8]) -> Vec<u8> {
    set.scrub(text).map_or_else(|| text.to_vec(), |(clean, _)| clean)
}

#[test]
fn every_spelling_is_replaced() {
    for value in [TOKEN, AWKWARD, "pässwört→😀 and more\n\t"] {
        let set = set_of(&[value]);
        for text in spellings(value) {
            let whole = [b"<[".as_slice(), &text, b"]>"].concat();
            let clean = scrub(&set, &whole);
            assert_eq!(
                String::from_utf8_lossy(&clean),
                "<[[secret:one]]>",
                "{}",
                String::from_utf8_lossy(&text)
            );
        }
    }
}

#[test]
fn spellings_match_real_encoders() {
    let has = |value: &str, text: &str| {
        assert!(spellings(value).contains(&text.as_bytes().to_vec()), "{value} {text}");
    };
    let value = "key/+=&<a b>'\"~z";
    has(value, value);
    has(value, r#"key\/+=&<a b>'\"~z"#);
    has(value, r#"key/+=\u0026\u003ca b\u003e'\"~z"#);
    has(value, r"key/\u002B=\u0026\u003Ca b\u003E\u0027\u0022~z");
    has(value, "key%2F%2B%3D%26%3Ca%20b%3E%27%22~z");
    has(value, "key%2f%2b%3d%26%3ca%20b%3e%27%22~z");
    has(value, "key%2F%2B%3D%26%3Ca+b%3E%27%22%7Ez");
    has(value, "key%2F%2B%3D%26%3Ca%20b%3E'%22~z");
    has(value, "key/+=&amp;&lt;a b&gt;&#39;&quot;~z");
    has(value, "key/+=&amp;&lt;a b&gt;&#x27;&quot;~z");
    has("abcdefgh", "6162636465666768");
    has("JKLMNOPQ", "4A4B4C4D4E4F5051");
    has("JKLMNOPQ", "4a4b4c4d4e4f5051");
    // `echo -n 12345678abc | base64` and so on, without the characters that depend on neighbouring
    // bytes.
    has("12345678abc", "MTIzNDU2NzhhYm");
    has("12345678abc", "EyMzQ1Njc4YWJj");
    has("12345678abc", "xMjM0NTY3OGFiY");
}

#[test]
fn basic_credential_made_of_a_value_is_replaced() {
    // Base64 of user:ghp_secret-value!, of me:..., and of the value followed by a colon.
    let set = set_of(&["ghp_secret-value!"]);
    for text in
        ["Basic dXNlcjpnaHBfc2VjcmV0LXZhbHVlIQ==", "bWU6Z2hwX3NlY3JldC12YWx1ZSE=", "Z2hwX3NlY3JldC12YWx1ZSE6"]
    {
        let clean = String::from_utf8(scrub(&set, text.as_bytes())).unwrap();
        assert!(clean.contains("[secret:one]"), "{text} {clean}");
    }
}

#[test]
fn overlapping_values_are_replaced_completely() {
    let set = set_of(&["abcdefghij", "ghijklmnop", "efghijkl"]);
    assert_eq!(scrub(&set, b"-abcdefghijklmnop-"), b"-[secret:one]-");
    assert_eq!(scrub(&set, b"-ghijklmnop-"), b"-[secret:two]-");
    assert_eq!(scrub(&set, b"abcdefghijabcdefghij"), b"[secret:one][secret:one]");
    let repeating = set_of(&["aaaaaaaaaa"]);
    assert_eq!(scrub(&repeating, b"b aaaaaaaaaaaaaaaaaaaaaaaaaaaaa b"), b"b [secret:one] b");
    assert_eq!(scrub(&repeating, b"b aaaaaaaaa b"), b"b aaaaaaaaa b");
}

#[test]
fn short_values_are_not_searched_for() {
    assert!(set_of(&["1234567"]).is_empty());
    assert!(!set_of(&["12345678"]).is_empty());
    assert_eq!(scrub(&set_of(&["1234567"]), b"1234567"), b"1234567");
}

#[test]
fn only_a_possible_start_of_a_value_is_held_back() {
    let set = set_of(&["secretvalue"]);
    let mut scrubber = set.scrubber();
    for event in ["data: {}\n\n", "data: se\n\n", "data: secretval.\n\n"] {
        assert_eq!(scrubber.push(Bytes::from(event)), event, "an event without a value goes on at once");
    }
    assert_eq!(scrubber.push(Bytes::from_static(b"data: secretval")), "data: ");
    assert_eq!(scrubber.push(Bytes::from_static(b"u")), "");
    assert_eq!(scrubber.push(Bytes::from_static(b"e\n")), "[secret:one]\n");
    assert_eq!(scrubber.push(Bytes::from_static(b"secre")), "");
    assert_eq!(scrubber.finish(), "secre");
    assert_eq!(scrubber.reflected(), 1);
}

#[test]
fn chunk_without_a_value_is_not_copied() {
    let mut scrubber = set_of(&[TOKEN]).scrubber();
    let piece = Bytes::from_static(b"nothing to see here.");
    assert_eq!(scrubber.push(piece.clone()).as_ptr(), piece.as_ptr());
}

#[test]
fn memory_is_bounded_while_a_value_repeats() {
    let set = set_of(&[&"a".repeat(16 * 1024)]);
    let mut scrubber = set.scrubber();
    let mut given = 0;
    for _ in 0..64 {
        given += scrubber.push(Bytes::from(vec![b'a'; 16 * 1024])).len();
        assert!(scrubber.search.held.len() <= 16 * 1024);
    }
    assert_eq!(given + scrubber.finish().len(), "[secret:one]".len());
}

#[test]
fn header_names_and_values_are_searched() {
    let set = set_of(&["TOKEN-Value-1", "secretvalue"]);
    let mut headers = HeaderMap::new();
    headers.insert("location", HeaderValue::from_static("https://a.test/?t=TOKEN-Value-1"));
    headers.insert("x-token-value-1", HeaderValue::from_static("in lower case"));
    headers.insert("x-token-value", HeaderValue::from_static("not whole"));
    assert_eq!(set.scrub_headers(&mut headers), 1);
    assert_eq!(headers["location"], "https://a.test/?t=[secret:one]");
    assert!(!headers.contains_key("x-token-value-1"));
    assert_eq!(headers["x-token-value"], "not whole");
    headers.insert("x-7365637265747661-6c7565", HeaderValue::from_static(""));
    headers.insert("x-73656372657476616c7565", HeaderValue::from_static(""));
    assert_eq!(set.scrub_headers(&mut headers), 2);
    assert_eq!(headers.len(), 3);
}

/// Texts made of spellings, of parts of spellings and of other bytes.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let spelled: Vec<Vec<u8>> =
        ["ab/ab/ab/ab", "ab/ab/cd", "xyzxyzxyz"].iter().flat_map(|value| spellings(value)).collect();
    let part = prop_oneof![
        proptest::sample::select(spelled.clone()),
        (
            proptest::sample::select(spelled),
            any::<proptest::sample::Index>(),
            any::<proptest::sample::Index>()
        )
            .prop_map(|(text, from, to)| {
                let (from, to) = (from.index(text.len()), to.index(text.len()));
                text.get(from..=to.max(from)).unwrap_or_default().to_vec()
            }),
        "[abxyz/%\\\\u0]{0,6}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
        // Long enough for the search to pass several positions at a time.
        proptest::collection::vec(any::<u8>(), 20..90),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

/// A simple implementation to compare with: finds all occurrences of all spellings, joins those
/// that overlap and labels them with the one that starts first and is longest.
fn naive(values: &[&str], text: &[u8]) -> Vec<u8> {
    let mut places = Vec::new();
    for (needle, value) in values.iter().enumerate() {
        for spelled in spellings(value) {
            let windows = text.windows(spelled.len()).enumerate();
            let found = windows.filter(|(_, window)| *window == spelled);
            places.extend(found.map(|(start, _)| (start, std::cmp::Reverse(start + spelled.len()), needle)));
        }
    }
    places.sort_unstable();
    let (mut clean, mut at) = (Vec::new(), 0);
    for (start, std::cmp::Reverse(end), needle) in places {
        if start >= at {
            clean.extend_from_slice(&text[at..start]);
            clean.extend_from_slice(&label(["one", "two", "three"][needle]));
        }
        at = at.max(end);
    }
    clean.extend_from_slice(&text[at..]);
    clean
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn result_does_not_depend_on_chunks(
        text in texts(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let values = ["ab/ab/ab/ab", "ab/ab/cd", "xyzxyzxyz"];
        let set = set_of(&values);
        let whole = naive(&values, &text);
        prop_assert_eq!(&scrub(&set, &text), &whole);

        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut scrubber, mut given, mut from) = (set.scrubber(), Vec::new(), 0);
        for cut in cuts.into_iter().chain([text.len()]) {
            given.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(&text[from..cut])));
            from = cut;
        }
        given.extend_from_slice(&scrubber.finish());
        prop_assert_eq!(String::from_utf8_lossy(&given), String::from_utf8_lossy(&whole));
        prop_assert_eq!(scrubber.growth(), (whole.len() as u64).saturating_sub(text.len() as u64));
        for value in values {
            for spelled in spellings(value) {
                prop_assert!(!given.windows(spelled.len()).any(|window| window == spelled));
            }
        }
    }

    #[test]
    fn chunks_of_one_byte_give_the_same_result(text in texts()) {
        let set = set_of(&["ab/ab/ab/ab", "ab/ab/cd", "xyzxyzxyz"]);
        let mut scrubber = set.scrubber();
        let mut given = Vec::new();
        for byte in &text {
            given.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(&[*byte])));
        }
        given.extend_from_slice(&scrubber.finish());
        prop_assert_eq!(given, scrub(&set, &text));
    }

    #[test]
    fn any_value_is_found(value in "[ -~]{8,40}", before in "[ -~]{0,70}", after in "[ -~]{0,70}") {
        let set = set_of(&[&value]);
        for spelled in spellings(&value) {
            let text = [before.as_bytes(), &spelled, after.as_bytes()].concat();
            let clean = scrub(&set, &text);
            prop_assert!(!clean.windows(spelled.len()).any(|window| window == spelled));
        }
    }
}
