//! Reads the data of server-sent events.

/// The longest sequence that ends an event: two line breaks.
pub(crate) const END_BYTES_MAX: usize = 4;

/// The offset after the last complete event, that is, after its blank line.
pub(crate) fn last_end(bytes: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];
    let last = |end: &[u8]| Some(bytes.windows(end.len()).rposition(|window| window == end)? + end.len());
    ends.into_iter().filter_map(last).max()
}

/// The `data` of each event, with its lines joined. Other fields and comments are left out. A last
/// event without a blank line is included.
pub(crate) fn data(body: &str) -> impl Iterator<Item = String> {
    let mut lines = lines(body.strip_prefix('\u{feff}').unwrap_or(body));
    std::iter::from_fn(move || next_data(&mut lines))
}

/// The `data` of the next event that has any.
fn next_data<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    let mut data: Option<String> = None;
    for line in lines {
        if line.is_empty() && data.is_some() {
            break;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field != "data" {
            continue;
        }
        let value = value.strip_prefix(' ').unwrap_or(value);
        match &mut data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => data = Some(value.to_owned()),
        }
    }
    data
}

/// Splits lines that end with CR LF, LF or CR.
fn lines(body: &str) -> impl Iterator<Item = &str> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after.strip_prefix("\r\n").or_else(|| after.strip_prefix(['\r', '\n'])).unwrap_or(after);
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_cut_as_the_standard_says() {
        for (body, events) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("\u{feff}event: message\r\nid: 1\r\ndata:a\r\ndata: b\r\n\r\n", vec!["a\nb"]),
            (": comment\n\ndata\n\n", vec![""]),
            ("data:  a\rdata:b\r\rdata: c", vec![" a\nb", "c"]),
            ("retry: 5\n\nother: x\n\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(data(body).collect::<Vec<_>>(), events, "{body:?}");
        }
    }

    #[test]
    fn the_end_of_the_last_whole_event_is_found() {
        for (bytes, end) in [
            ("data: a\n\ndata: b", Some(9)),
            ("data: a\r\n\r\n", Some(11)),
            ("data: a\r\rdata: b\r\rx", Some(18)),
            ("data: a\r\ndata: b\n", None),
            ("", None),
        ] {
            assert_eq!(last_end(bytes.as_bytes()), end, "{bytes:?}");
        }
    }

    proptest! {
        /// Events are read back as they were written, with every kind of line end.
        #[test]
        fn events_are_read_back(texts in proptest::collection::vec("[a-z :{}é]{0,8}", 0..6), end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")]) {
            let body: String = texts.iter().map(|text| format!("data: {text}{end}{end}")).collect();
            prop_assert_eq!(data(&body).collect::<Vec<_>>(), texts);
        }

        #[test]
        fn any_text_is_read(body in "(data|event|:|\\PC|\r|\n| ){0,80}") {
            prop_assert!(data(&body).map(|data| data.len()).sum::<usize>() <= body.len());
        }
    }
}
