//! Converts the snippets of engines to plain text. Some engines mark the query's words with tags and
//! escape the rest.

/// Tags that engines put around words.
const TAGS: [&str; 10] = ["strong", "/strong", "b", "/b", "em", "/em", "span", "/span", "br", "br/"];
/// The longest entity, in bytes.
const ENTITY_BYTES_MAX: usize = 10;

/// The text without these tags and without control characters, with entities resolved. Line breaks
/// are kept. A tab or the like becomes a space, so that it still separates words.
pub(crate) fn text(marked: &str) -> String {
    let mut out = String::with_capacity(marked.len());
    let mut rest = marked;
    while let Some(at) = rest.find(['<', '&']) {
        let (before, special) = rest.split_at(at);
        out.push_str(before);
        let (written, length) = if special.starts_with('<') { tag(special) } else { entity(special) };
        out.push_str(&written);
        rest = special.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    without_controls(&out).trim().to_owned()
}

fn without_controls(text: &str) -> String {
    let mut letters = text.chars().peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(letter) = letters.next() {
        match letter {
            // It is one line break together with the next letter.
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' => out.push('\n'),
            control if control.is_control() && control.is_whitespace() => out.push(' '),
            control if control.is_control() => {}
            letter => out.push(letter),
        }
    }
    out
}

/// The same text on one line.
pub(crate) fn line(marked: &str) -> String {
    text(marked).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The replacement for the tag or `<` at the start of `text`, and the number of bytes it replaces.
fn tag(text: &str) -> (String, usize) {
    let name = text.get(1..).unwrap_or_default();
    let known = TAGS.iter().find(|known| {
        name.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known))
            && name.get(known.len()..).is_some_and(|rest| rest.starts_with('>'))
    });
    match known {
        Some(known) if known.starts_with("br") => ("\n".to_owned(), known.len() + 2),
        Some(known) => (String::new(), known.len() + 2),
        None => ("<".to_owned(), 1),
    }
}

/// The replacement for the entity or `&` at the start of `text`, and the number of bytes it replaces.
fn entity(text: &str) -> (String, usize) {
    let near = text.bytes().take(ENTITY_BYTES_MAX);
    let resolved = near.enumerate().find(|(_, byte)| *byte == b';').and_then(|(end, _)| {
        let letter = match text.get(1..end)? {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "nbsp" => ' ',
            number => numbered(number.strip_prefix('#')?)?,
        };
        Some((letter.to_string(), end + 1))
    });
    resolved.unwrap_or_else(|| ("&".to_owned(), 1))
}

fn numbered(digits: &str) -> Option<char> {
    let code = match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tags_and_entities_are_resolved() {
        for (marked, plain) in [
            ("The <strong>Rust</strong> &amp; C&#43;&#x2B; book", "The Rust & C++ book"),
            ("1 < 2 and <T> stays, &unknown; too & so on", "1 < 2 and <T> stays, &unknown; too & so on"),
            ("one<br>two<BR/>three", "one\ntwo\nthree"),
            ("a\u{7}b\r\n c\u{85} ", "ab\n c"),
            ("col1\tcol2\rcol3\u{b}col4\u{c}col5\u{85}col6", "col1 col2 col3 col4 col5 col6"),
            ("one&#9;two&#13;&#10;three\r\r\nfour\u{1b}[1m", "one two\nthree \nfour[1m"),
            ("&amp;lt;script&amp;gt;", "&lt;script&gt;"),
            ("&#0;&#xD800;&#99999999;", "&#xD800;&#99999999;"),
            ("&", "&"),
            ("<", "<"),
        ] {
            assert_eq!(text(marked), plain, "{marked:?}");
        }
        assert_eq!(line("a\n <b>b</b>\u{a0} c"), "a b c");
    }

    proptest! {
        #[test]
        fn any_text_comes_out_bounded_and_without_control_characters(marked in "\\PC{0,40}[<&;#x0-9brstong/ >\u{0}-\u{1f}é]{0,60}") {
            let plain = text(&marked);
            prop_assert!(plain.len() <= marked.len());
            prop_assert!(plain.chars().all(|letter| letter == '\n' || !letter.is_control()));
        }
    }
}
