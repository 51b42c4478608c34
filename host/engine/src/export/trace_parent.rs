//! The trace that a client's request belongs to, from its header `traceparent` (W3C Trace Context).

/// Trace and span of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
}

impl TraceParent {
    /// Reads the value of the header: `00-TRACE_ID-SPAN_ID-FLAGS`. Later versions may have more
    /// fields. `None` for a value that is not valid.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut fields = header.split('-');
        let (version, trace_id) = (fields.next()?, fields.next()?);
        let (span_id, flags) = (fields.next()?, fields.next()?);
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_short = |text: &str| text.len() == 2 && is_hex(text);
        if !is_short(version) || version == "ff" || !is_short(flags) || !is_hex(trace_id) || !is_hex(span_id)
        {
            return None;
        }
        if version == "00" && fields.next().is_some() {
            return None;
        }
        let trace_id = parse_id(trace_id, 16)?.try_into().ok()?;
        let span_id = parse_id(span_id, 8)?.try_into().ok()?;
        Some(Self { trace_id, span_id })
    }
}

/// Decodes an id of `bytes` bytes from hexadecimal. All zeros are refused, because OpenTelemetry
/// calls them invalid.
pub(super) fn parse_id(text: &str, bytes: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != bytes * 2 {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    let id: Option<Vec<u8>> = digits.chunks_exact(2).map(pair).collect();
    id.filter(|id| id.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_valid_header_names_trace_and_span() {
        let expected = TraceParent {
            trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes(),
            span_id: 0xb7ad_6b71_6920_3331_u64.to_be_bytes(),
        };
        for header in [format!("00-{TRACE}-{SPAN}-01"), format!("cc-{TRACE}-{SPAN}-00-later-fields")] {
            assert_eq!(TraceParent::parse(&header), Some(expected), "{header}");
        }
    }

    #[test]
    fn invalid_headers_are_ignored() {
        let zeros = "0".repeat(32);
        for header in [
            String::new(),
            format!("{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{}-01", &SPAN[1..]),
            format!("00-{TRACE}-{SPAN}-zz"),
        ] {
            assert_eq!(TraceParent::parse(&header), None, "{header}");
        }
    }
}
