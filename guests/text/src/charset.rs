//! Decodes untrusted text to Unicode, as browsers do: by the byte order mark, then the header, then the
//! own declaration of a document in HTML or XML, then a guess.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How far into a document its declaration of an encoding is searched for, in bytes.
const PRESCAN_BYTES: usize = 2048;

/// Decodes `body`. Bytes that are invalid in the encoding become U+FFFD; decoding never fails.
#[must_use]
pub fn decode(content_type: Option<&str>, body: &[u8]) -> String {
    let encoding = match Encoding::for_bom(body) {
        Some((encoding, _)) => encoding,
        None => content_type
            .and_then(|content_type| parameter(content_type, "charset"))
            .and_then(|label| Encoding::for_label(label.as_bytes()))
            .or_else(|| stated(body).filter(|_| is_markup(content_type, body)))
            .unwrap_or_else(|| guess(body)),
    };
    encoding.decode_with_bom_removal(body).0.into_owned()
}

/// Whether a body can declare its encoding. In other data, a declaration is part of a quoted document. A
/// body without a usable type is judged by its first byte.
fn is_markup(content_type: Option<&str>, body: &[u8]) -> bool {
    let essence = content_type.and_then(|content_type| content_type.split(';').next()).unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    match &*essence {
        "text/html" | "text/xml" | "application/xml" => true,
        "application/octet-stream" | "application/x-unknown" => begins_with_tag(body),
        essence if essence.contains('/') => essence.ends_with("+xml"),
        _ => begins_with_tag(body),
    }
}

fn begins_with_tag(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

/// The value of a parameter of a content type, quotes removed.
fn parameter<'a>(content_type: &'a str, name: &str) -> Option<&'a str> {
    content_type.split(';').skip(1).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

/// The encoding in `<meta charset>`, `<meta content="...; charset=">` or an XML declaration. A
/// declaration that could be read byte by byte is not UTF-16, so that label is read as UTF-8.
fn stated(body: &[u8]) -> Option<&'static Encoding> {
    let head = body.get(..PRESCAN_BYTES).unwrap_or(body).to_ascii_lowercase();
    let tags = head.split(|byte| *byte == b'<').skip(1);
    let tag = tags.filter_map(|tag| tag.split(|byte| *byte == b'>').next());
    let label = tag
        .filter(|tag| tag.starts_with(b"meta") || tag.starts_with(b"?xml"))
        .find_map(|tag| label_after(tag, b"charset").or_else(|| label_after(tag, b"encoding")))?;
    let encoding = Encoding::for_label(label)?;
    Some(if encoding == UTF_16BE || encoding == UTF_16LE { UTF_8 } else { encoding })
}

/// The word after `key` and an equals sign.
fn label_after<'a>(tag: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let start = tag.windows(key.len()).position(|window| window == key)? + key.len();
    let rest = tag.get(start..)?.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let is_quote = |byte: &u8| matches!(byte, b'"' | b'\'');
    let rest = if rest.first().is_some_and(is_quote) { rest.get(1..)? } else { rest };
    let end = rest
        .iter()
        .position(|byte| is_quote(byte) || byte.is_ascii_whitespace() || matches!(byte, b';' | b'/' | b'?'));
    rest.get(..end.unwrap_or(rest.len()))
}

fn guess(body: &[u8]) -> &'static Encoding {
    if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(bytes).collect()
    }

    #[test]
    fn every_source_of_the_encoding_is_believed_in_order() {
        let cases: [(Option<&str>, Vec<u8>, &str); 12] = [
            (None, "grün".into(), "grün"),
            (None, b"gr\xfcn".to_vec(), "grün"),
            (Some("text/html; charset=ISO-8859-1"), b"gr\xfcn \x80".to_vec(), "grün €"),
            (Some("text/html; charset=\"utf-8\""), "grün".into(), "grün"),
            (Some("text/html; charset=nonsense"), b"gr\xfcn".to_vec(), "grün"),
            (None, b"<meta charset=shift_jis>\x93\xfa\x96{".to_vec(), "<meta charset=shift_jis>日本"),
            (
                None,
                b"<META http-equiv='Content-Type' content='text/html; charset=koi8-r'>\xc4\xc1".to_vec(),
                "<META http-equiv='Content-Type' content='text/html; charset=koi8-r'>да",
            ),
            (
                None,
                b"<?xml version=\"1.0\" encoding=\"windows-1251\"?>\xe4\xe0".to_vec(),
                "<?xml version=\"1.0\" encoding=\"windows-1251\"?>да",
            ),
            (Some("text/plain; charset=latin1"), "\u{feff}grün".into(), "grün"),
            (None, utf_16("grün", u16::to_le_bytes), "grün"),
            (Some("text/html; charset=utf-8"), utf_16("grün", u16::to_be_bytes), "grün"),
            (None, b"<meta charset=utf-16>gr\xc3\xbcn".to_vec(), "<meta charset=utf-16>grün"),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(decode(content_type, &body), expected, "{content_type:?} {body:?}");
        }
    }

    #[test]
    fn only_markup_declares_its_own_encoding() {
        const META: &str = "<meta charset=iso-8859-1>ü";
        const WRONG: &str = "<meta charset=iso-8859-1>Ã¼";
        for content_type in [
            "text/html",
            "TEXT/HTML ; a=b",
            "application/xhtml+xml",
            "image/svg+xml",
            "text/xml",
            "application/octet-stream",
            "nonsense",
            "",
        ] {
            assert_eq!(decode(Some(content_type), META.as_bytes()), WRONG, "{content_type}");
        }
        for content_type in ["application/json", "text/plain", "text/csv", "text/markdown;a=text/html"] {
            assert_eq!(decode(Some(content_type), META.as_bytes()), META, "{content_type}");
        }
        let data = format!("{{\"html\":\"{META}\"}}");
        for content_type in [None, Some("application/octet-stream"), Some("application/json")] {
            assert_eq!(decode(content_type, data.as_bytes()), data, "{content_type:?}");
        }
    }

    #[test]
    fn wrong_bytes_become_replacement_characters() {
        assert_eq!(decode(Some("text/plain;charset=utf-8"), b"a\xffb"), "a\u{fffd}b");
        assert_eq!(decode(None, &[0xff, 0xfe, b'a']), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn any_bytes_decode(body in proptest::collection::vec(any::<u8>(), 0..300), header in "\\PC{0,30}") {
            drop(decode(Some(&header), &body));
            let mut stating = b"<meta charset=".to_vec();
            stating.extend_from_slice(&body);
            drop(decode(None, &stating));
        }
    }
}
