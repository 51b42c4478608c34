//! Removes very large tags from a page before it is tokenized. The tokenizer compares every attribute
//! of a tag with every other one, so a tag of one megabyte would take minutes.

use std::borrow::Cow;

/// The longest tag that is kept, in bytes. A longer one contains an image, the state of a script, or
/// is an attack.
const TAG_BYTES_MAX: usize = 64 * 1024;
/// The largest number of positions in a tag where an attribute could begin.
const SEPARATORS_MAX: usize = 1_000;

/// The elements whose content is not markup and ends at their end tag only.
const RAW_TEXT: [&[u8]; 8] =
    [b"script", b"style", b"title", b"textarea", b"iframe", b"noembed", b"noframes", b"xmp"];

/// The page without tags that are too large. Text inside scripts that looks like such a tag is
/// removed too, because scripts are not read. The end tag of the script stays: without it, the
/// tokenizer would take the rest of the page for the script.
pub(crate) fn without_monsters(html: &str) -> Cow<'_, str> {
    let bytes = html.as_bytes();
    let mut kept = String::new();
    // The start of the part that is not copied yet, and the position where the search continues.
    let (mut copied, mut at) = (0, 0);
    while let Some(start) = find(bytes, at, b'<') {
        at = start + 1;
        let rest = bytes.get(at..).unwrap_or_default();
        if !rest.strip_prefix(b"/").unwrap_or(rest).first().is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let tag = scan(bytes, at);
        at = tag.end;
        if tag.end - start <= TAG_BYTES_MAX && tag.separators <= SEPARATORS_MAX {
            continue;
        }
        kept.push_str(html.get(copied..start).unwrap_or_default());
        if let Some(name) = raw_text_ended(bytes, start) {
            kept.push_str(html.get(start..start + "</".len() + name.len()).unwrap_or_default());
            kept.push('>');
        } else {
            at = tag.raw_text_end.unwrap_or(tag.end);
        }
        copied = at;
    }
    if copied == 0 {
        return Cow::Borrowed(html);
    }
    kept.push_str(html.get(copied..).unwrap_or_default());
    Cow::Owned(kept)
}

/// What looks like a tag.
struct Scanned {
    end: usize,
    separators: usize,
    /// Where an end tag of raw text or the end of a comment begins inside, if there is one.
    raw_text_end: Option<usize>,
}

/// Scans the tag that begins before `at`. A `>` inside quotes ends the tag too. The remainder is
/// then read as text.
fn scan(bytes: &[u8], at: usize) -> Scanned {
    let mut tag = Scanned { end: bytes.len(), separators: 0, raw_text_end: None };
    for (offset, byte) in bytes.get(at..).unwrap_or_default().iter().enumerate() {
        match byte {
            b'>' => {
                tag.end = at + offset + 1;
                if bytes.get(at..tag.end).is_some_and(|tag| tag.ends_with(b"-->")) {
                    tag.raw_text_end.get_or_insert(tag.end - b"-->".len());
                }
                break;
            }
            b'<' if tag.raw_text_end.is_none() && raw_text_ended(bytes, at + offset).is_some() => {
                tag.raw_text_end = Some(at + offset);
            }
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c | b'/' | b'"' | b'\'' => tag.separators += 1,
            _ => {}
        }
    }
    tag
}

/// The name of the element whose raw text the end tag at `start` ends, if there is such a tag.
fn raw_text_ended(bytes: &[u8], start: usize) -> Option<&'static [u8]> {
    let name = bytes.get(start..)?.strip_prefix(b"</")?;
    RAW_TEXT.into_iter().find(|raw| {
        name.get(..raw.len()).is_some_and(|name| name.eq_ignore_ascii_case(raw))
            && matches!(name.get(raw.len()), Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c | b'/' | b'>'))
    })
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
        let closing = format!("<p>a</p {}>b", "a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&closing), "<p>ab");
    }

    #[test]
    fn the_end_of_a_script_is_kept() {
        let many = "'k' ".repeat(SEPARATORS_MAX);
        for name in ["script", "SCRIPT", "style", "title", "textarea", "iframe"] {
            for end in ["", " ", "\n", "/"] {
                let page = format!("<{name}>i<n;{many}</{name}{end}><p>after</p>");
                let expected = format!("<{name}>i</{name}{end}><p>after</p>");
                assert_eq!(without_monsters(&page), expected);
            }
            // The end tag itself is too large.
            let page = format!("<{name}>i<n;{many}</{name} {many}><p>after</p>");
            assert_eq!(without_monsters(&page), format!("<{name}>i</{name}><p>after</p>"));
        }
        let page = format!("<script>i<n;{many}</scripts {many}></script>");
        assert_eq!(without_monsters(&page), "<script>i</script>");
        let page = format!("<!-- a<b {many}--><p>after</p>");
        assert_eq!(without_monsters(&page), "<!-- a--><p>after</p>");
    }

    #[test]
    fn an_end_tag_inside_hides_no_oversized_tag() {
        let some = "a ".repeat(SEPARATORS_MAX * 3 / 4);
        let page = format!("<p {some}</script {some}>b");
        assert_eq!(without_monsters(&page), format!("</script {some}>b"));
        let page = format!("<p {}>b", "</script a ".repeat(SEPARATORS_MAX));
        assert_eq!(without_monsters(&page), "</script>b");
    }
}
