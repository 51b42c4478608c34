//! Data URLs (RFC 2397), which clients use for images and files.

/// The parts of a data URL; nothing is decoded or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataUrl<'a> {
    /// The media type without parameters, for example `image/png`; `text/plain` when the URL
    /// has none (RFC 2397).
    pub media_type: &'a str,
    /// Whether `data` is base64. Otherwise it is percent-encoded text.
    pub base64: bool,
    /// Everything after the comma.
    pub data: &'a str,
}

impl<'a> DataUrl<'a> {
    /// Reads `url`; `None` when it is not a data URL.
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let scheme = url.get(..5)?;
        if !scheme.eq_ignore_ascii_case("data:") {
            return None;
        }
        let (head, data) = url.get(5..)?.split_once(',')?;
        let mut parts = head.split(';');
        let media_type = parts.next().map(str::trim).filter(|kind| !kind.is_empty()).unwrap_or("text/plain");
        let base64 = parts.any(|part| part.trim().eq_ignore_ascii_case("base64"));
        Some(Self { media_type, base64, data })
    }
}

#[cfg(test)]
mod tests {
    use super::DataUrl;

    #[test]
    fn reads_the_forms_clients_send() {
        let cases = [
            ("data:image/png;base64,AAAA", Some(("image/png", true, "AAAA"))),
            ("DATA:image/jpeg;charset=x;BASE64,/9j=", Some(("image/jpeg", true, "/9j="))),
            ("data:,hello", Some(("text/plain", false, "hello"))),
            ("data:;base64,aGk=", Some(("text/plain", true, "aGk="))),
            ("data:application/pdf;base64,", Some(("application/pdf", true, ""))),
            ("data:image/png;base64", None),
            ("https://example.com/a,b", None),
            ("dät:", None),
            ("", None),
        ];
        for (url, expected) in cases {
            let read = DataUrl::parse(url).map(|u| (u.media_type, u.base64, u.data));
            assert_eq!(read, expected, "{url}");
        }
    }
}
