//! Names of secrets, beside the pattern `[a-z][a-z0-9]*(_[a-z0-9]+)*` of at most 255 characters.
#![no_main]

use cofferdam_store::SecretName;

fn fits(text: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    text.len() <= 255
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.split('_').all(part)
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let name = text.parse::<SecretName>();
    assert_eq!(name.is_ok(), fits(text), "{text}");
    if let Ok(name) = name {
        assert_eq!(name.as_str(), text);
    }
});
