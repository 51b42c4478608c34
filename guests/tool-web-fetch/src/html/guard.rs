//! What is taken out of a page before it is tokenized: tags so large that no
//! author wrote them. The tokenizer compares every attribute of a tag with every
//! other, so that one tag of a megabyte would take minutes.

use std::borrow::Cow;

/// Longest tag that is read. What is longer is a picture in an attribute, state
/// of a script, or an attack.
const TAG_BYTES_MAX: usize = 64 * 1024;
/// Most places in a tag where an attribute could begin.
const SEPARATORS_MAX: usize = 1_000;

/// The page without tags that are too large. Text inside scripts that looks like
/// such a tag goes too; nobody reads it.
pub(crate) fn without_monsters(html: &str) -> Cow<'_, str> {
    let bytes = html.as_bytes();
    let mut kept = String::new();
    // Where the part begins that is not copied yet, and where to look on.
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

/// The end of the tag that begins before `at`, and its separators. A `>` inside
/// quotes ends it too: then the rest is read as text, and is no tag.
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
    fn pages_of_people_are_left_alone() {
        for page in ["", "<", "a < b", "<p class='x'>text</p>", "<p", "1 <2 <3", "<p title='a>b'>", "ä<ö>"]
        {
            assert!(matches!(without_monsters(page), Cow::Borrowed(same) if same == page), "{page}");
        }
    }

    #[test]
    fn tags_too_large_go_and_what_follows_stays() {
        let long = format!("<p>a</p><img src='data:{}'>ü<p>b</p>", "A".repeat(TAG_BYTES_MAX));
        assert_eq!(without_monsters(&long), "<p>a</p>ü<p>b</p>");
        let many = format!("<p {}>b</p>", "a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&many), "b</p>");
        let endless = format!("a<p {}", "a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&endless), "a");
    }
}
