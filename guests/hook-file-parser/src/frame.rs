//! Renders the text of a file for a model: with its name around it, and with a note when a part is
//! missing.

use cofferdam_pdf::Document;
use cofferdam_text::clip;

/// The longest file name that is shown, in characters.
const NAME_CHARS_MAX: usize = 200;
/// The name of a file without a name.
const NAMELESS: &str = "file.pdf";
const LEFT_OUT: &str = "\n[The rest of this file was left out because it is too long.]";

/// The text of a file between tags that carry its name.
pub(crate) fn framed(filename: Option<&str>, document: &Document) -> String {
    let name = filename.filter(|name| !name.trim().is_empty()).unwrap_or(NAMELESS);
    let title =
        document.title.as_ref().map_or_else(String::new, |title| format!(" title=\"{}\"", quoted(title)));
    let rest = if document.cut { LEFT_OUT } else { "" };
    format!("<file name=\"{}\"{title}>\n{}{rest}\n</file>", quoted(name), document.text)
}

/// A name with characters escaped so that it cannot end the attribute.
fn quoted(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len());
    for char in clip(name, NAME_CHARS_MAX).text.chars() {
        match char {
            '"' => quoted.push_str("&quot;"),
            '&' => quoted.push_str("&amp;"),
            '<' => quoted.push_str("&lt;"),
            '>' => quoted.push_str("&gt;"),
            char if char.is_control() => quoted.push(' '),
            char => quoted.push(char),
        }
    }
    quoted
}

/// The longest prefix of a text that takes at most `bytes_max` bytes in JSON.
pub(crate) fn fitting(text: &str, bytes_max: usize) -> &str {
    let mut left = bytes_max;
    let end = text.char_indices().find(|(_, char)| {
        let bytes = match char {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            char if char.is_control() => 6,
            char => char.len_utf8(),
        };
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        !fits
    });
    end.map_or(text, |(end, _)| text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(title: Option<&str>, cut: bool) -> Document {
        Document { title: title.map(str::to_owned), text: "words".to_owned(), cut }
    }

    #[test]
    fn a_file_stands_under_its_name() {
        assert_eq!(framed(Some("a.pdf"), &document(None, false)), "<file name=\"a.pdf\">\nwords\n</file>");
        assert_eq!(
            framed(None, &document(Some("T"), true)),
            "<file name=\"file.pdf\" title=\"T\">\nwords\n[The rest of this file was left out because it is too long.]\n</file>"
        );
        assert_eq!(
            framed(Some("\"><x>\n&"), &document(None, false)),
            "<file name=\"&quot;&gt;&lt;x&gt; &amp;\">\nwords\n</file>"
        );
        assert_eq!(framed(Some(&"n".repeat(999)), &document(None, false)).len(), 200 + 28);
    }

    #[test]
    fn text_is_cut_where_its_json_would_be_too_long() {
        for text in ["plain", "\"\\\n\u{1}é日", ""] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(fitting(text, json.len() - 2), text);
        }
        assert_eq!(fitting("a\nb", 2), "a");
        assert_eq!(fitting("a\nb", 3), "a\n");
        assert_eq!(fitting("aé", 2), "a");
        assert_eq!(fitting("a", 0), "");
    }
}
