//! Removes very large tags from a page before it is tokenized. The tokenizer compares every attribute
//! of a tag with every other one, so a tag of one megabyte would take minutes.

use std::borrow::Cow;

/// The longest tag that is kept, in bytes. A longer one contains an image, the state of a script, or
/// is an attack.
const TAG_BYTES_MAX: usize = 64 * 1024;
/// The largest number of positions in a tag where an attribute could begin.
const SEPARATORS_MAX: usize = 1_000;

/// The page without tags that are too large. Text inside scripts that looks like such a tag is
/// removed too; scripts are not read.
pub(crate) fn without_monsters(html: &str) -> Cow<'_, str> {
    let bytes = html.as_bytes();
    let mut kept = String::new();
    // The start of the part that is not copied yet, and the position where the search continues.
    let (mut copied, mut at) = (0, 0);
    while let Some(start) = find(bytes, at, b'<') {
        at = start + 1;
        if !bytes.get(at).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let (end, separators) = scan(bytes, at);
        if end - start > TAG_BYTES_MAX || separators > SEPARATORS_MAX {
            kept.push_str(html.get(copied..start).unwrap_or_default());
            copied = end;
        }
        at = end;
    }
    if copied == 0 {
        return Cow::Borrowed(html);
    }
    kept.push_str(html.get(copied..).unwrap_or_default());
    Cow::Owned(kept)
}

/// The end of the tag that begins before `at`, and the number of its separators. A `>` inside
/// quotes ends the tag too. The remainder is then read as text.
fn scan(bytes: &[u8], at: usize) -> (usize, usize) {
    let mut separators = 0;
    for (offset, byte) in bytes.get(at..).unwrap_or_default().iter().enumerate() {
        match byte {
            b'>' => return (at + offset + 1, separators),
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c | b'/' | b'"' | b'\'' => separators += 1,
            _ => {}
        }
    }
    (bytes.len(), separators)
}

fn find(bytes: &[u8], from: usize, wanted: u8) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter().position(|byte| *byte == wanted).map(|offset| from + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_pages_are_unchanged() {
        for page in ["", "<", "a < b", "<p class='x'>text</p>", "<p", "1 <2 <3", "<p title='a>b'>", "ä<ö>"]
        {
            assert!(matches!(without_monsters(page), Cow::Borrowed(same) if same == page), "{page}");
        }
    }

    #[test]
    fn oversized_tags_are_removed_and_the_rest_is_kept() {
        let long = format!("<p>a</p><img src='data:{}'>ü<p>b</p>", "A".repeat(TAG_BYTES_MAX));
        assert_eq!(without_monsters(&long), "<p>a</p>ü<p>b</p>");
        let many = format!("<p {}>b</p>", "a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&many), "b</p>");
        let endless = format!("a<p {}", "a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&endless), "a");
    }
}
