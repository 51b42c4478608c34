//! Recognizes PDF files and decodes them.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cofferdam_guest_kit::DataUrl;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 24 * 1024 * 1024;
/// How many base64 characters are examined to recognize a PDF. White space may precede its marker.
const HEAD_CHARS: usize = 256;

/// Accepts base64 with and without padding, because clients send both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes of a PDF file; `None` for a file of another kind. `data` is a data URL or plain base64.
///
/// # Errors
///
/// When a file that claims to be a PDF cannot be decoded or is too large.
pub(crate) fn pdf(data: &str, filename: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    let (media_type, encoded) = match DataUrl::parse(data) {
        Some(url) if url.base64 => (Some(url.media_type), url.data),
        // Percent-encoded text.
        Some(_) => return Ok(None),
        None => (None, data),
    };
    let is_named = filename.is_some_and(|name| has_suffix(name, ".pdf"));
    let is_typed = media_type.is_some_and(|kind| {
        ["application/pdf", "application/x-pdf"].iter().any(|pdf| kind.eq_ignore_ascii_case(pdf))
    });
    let is_pdf = is_typed || (is_named && media_type.is_none()) || has_mark(encoded);
    if !is_pdf {
        return Ok(None);
    }
    if encoded.len() / 4 * 3 > FILE_BYTES_MAX {
        return Err(format!("is a PDF of more than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let decoded = BASE64.decode(without_blanks(encoded).as_bytes());
    decoded.map(Some).map_err(|_| "is said to be a PDF and is not valid base64".to_owned())
}

fn has_suffix(name: &str, suffix: &str) -> bool {
    let start = name.len().checked_sub(suffix.len());
    start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

/// Whether the first bytes are those of a PDF, whatever the file name is.
fn has_mark(encoded: &str) -> bool {
    let head: String = encoded.chars().filter(|char| !char.is_ascii_whitespace()).take(HEAD_CHARS).collect();
    // Without the last characters, which may be an incomplete group of four.
    let whole = head.get(..head.len() / 4 * 4).unwrap_or_default();
    BASE64.decode(whole).is_ok_and(|bytes| bytes.trim_ascii_start().starts_with(b"%PDF-"))
}

fn without_blanks(encoded: &str) -> Cow<'_, str> {
    if encoded.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return encoded.chars().filter(|char| !char.is_ascii_whitespace()).collect();
    }
    Cow::Borrowed(encoded)
}

#[cfg(test)]
mod tests {
    use super::{BASE64, pdf};
    use base64::Engine;

    #[test]
    fn a_pdf_is_known_by_its_type_its_name_or_its_bytes() {
        let bytes = b"%PDF-1.7 and more";
        let coded = BASE64.encode(bytes);
        let found = |data: &str, name: Option<&str>| pdf(data, name).map(|bytes| bytes.is_some());
        for data in [
            coded.clone(),
            coded.trim_end_matches('=').to_owned(),
            coded.replace('A', "A\n"),
            format!("data:application/pdf;base64,{coded}"),
            format!("data:text/plain;base64,{coded}"),
            format!("data:application/octet-stream;base64,{coded}"),
        ] {
            assert_eq!(pdf(&data, None), Ok(Some(bytes.to_vec())), "{data}");
        }
        let other = BASE64.encode(b"{\"a\":1}");
        assert_eq!(found(&other, Some("a.json")), Ok(false));
        assert_eq!(found(&other, Some("a.PDF")), Ok(true));
        assert_eq!(found(&format!("data:text/csv;base64,{other}"), Some("a.pdf")), Ok(false));
        assert_eq!(found("data:text/plain,hello", Some("a.pdf")), Ok(false));
        assert_eq!(found("", None), Ok(false));
        assert!(found("!!!", Some("a.pdf")).unwrap_err().contains("not valid base64"));
        assert!(found("data:application/pdf;base64,%", None).unwrap_err().contains("not valid base64"));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_taken_out_of_its_coding() {
        let large = format!("data:application/pdf;base64,{}", "A".repeat((24 << 20) / 3 * 4 + 400));
        assert_eq!(pdf(&large, None), Err("is a PDF of more than 24 MiB".to_owned()));
    }
}
