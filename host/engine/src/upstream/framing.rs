//! Cuts a provider's byte stream into frames: server-sent events or NDJSON lines. The host does
//! this for every dialect, so guests always get whole events and whole characters. The length of a
//! frame is limited: a provider that never ends a line causes an error, not unbounded memory.

use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::Frame;

/// The longest frame of a provider, in bytes: enough for a large picture in base64.
pub const FRAME_BYTES_MAX: usize = 32 << 20;

/// A frame grew beyond [`FRAME_BYTES_MAX`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event of the provider's stream is longer than {FRAME_BYTES_MAX} bytes")]
pub struct FrameTooLong;

/// The state between two reads.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    /// The unfinished line.
    line: Vec<u8>,
    /// The last line ended in a carriage return: if a line feed follows, it belongs to the same
    /// line ending.
    after_carriage_return: bool,
    first_line: bool,
    name: String,
    data: Vec<u8>,
    has_data: bool,
}

impl Framer {
    /// A framer at the beginning of a stream.
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            line: Vec::new(),
            after_carriage_return: false,
            first_line: true,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    /// Takes one read and appends the frames that it completes to `frames`.
    ///
    /// # Errors
    /// [`FrameTooLong`]. The framer must not be used after it.
    pub fn push(&mut self, mut bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameTooLong> {
        // HTTP/2 allows reads without a byte.
        if self.after_carriage_return && !bytes.is_empty() {
            self.after_carriage_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(end);
            let (ending, mut rest) = rest.split_at(1);
            if ending == b"\r" {
                match rest.strip_prefix(b"\n") {
                    Some(after) => rest = after,
                    None => self.after_carriage_return = rest.is_empty(),
                }
            }
            if self.line.is_empty() {
                self.end_line(line, frames)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole, frames)?;
                whole.clear();
                self.line = whole;
            }
            bytes = rest;
        }
        if self.line.len() + self.data.len() + bytes.len() > FRAME_BYTES_MAX {
            return Err(FrameTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Completes the last frame after the provider ended its stream without an error. Several
    /// servers leave out the final line break or blank line.
    ///
    /// # Errors
    /// [`FrameTooLong`].
    pub fn end(&mut self, frames: &mut Vec<Frame>) -> Result<(), FrameTooLong> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, frames)?;
        }
        if self.framing == Framing::Sse {
            self.dispatch(frames);
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameTooLong> {
        if self.data.len() + line.len() > FRAME_BYTES_MAX {
            return Err(FrameTooLong);
        }
        match self.framing {
            Framing::Ndjson => {
                if !line.iter().all(u8::is_ascii_whitespace) {
                    frames.push(Frame { name: String::new(), data: line.to_vec() });
                }
            }
            Framing::Sse => self.end_sse_line(line, frames),
        }
        Ok(())
    }

    fn end_sse_line(&mut self, mut line: &[u8], frames: &mut Vec<Frame>) {
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(frames);
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (field, rest) = line.split_at(colon);
                let value = rest.strip_prefix(b":").unwrap_or(rest);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // Comments (an empty field name), `id`, `retry` and unknown fields are not used here.
            _ => {}
        }
    }

    fn dispatch(&mut self, frames: &mut Vec<Frame>) {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            frames.push(Frame { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames_of(framing: Framing, reads: &[&[u8]]) -> Vec<(String, String)> {
        let mut framer = Framer::new(framing);
        let mut frames = Vec::new();
        for read in reads {
            framer.push(read, &mut frames).unwrap();
        }
        framer.end(&mut frames).unwrap();
        frames.into_iter().map(|f| (f.name, String::from_utf8_lossy(&f.data).into_owned())).collect()
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn sse_fields_comments_and_all_line_endings_are_understood() {
        let stream = b"\xef\xbb\xbf: hello\nevent: a\ndata: 1\n\ndata:2\r\ndata: 3\r\n\r\nevent: x\n\nid: 7\rdata:  4\r\rdata\n\n";
        assert_eq!(
            frames_of(Framing::Sse, &[stream]),
            [pair("a", "1"), pair("", "2\n3"), pair("", " 4"), pair("", "")]
        );
    }

    #[test]
    fn a_read_without_a_byte_is_no_end_of_a_line() {
        let reads: [&[u8]; 3] = [b"data: 1\r", b"", b"\ndata: 2\r\n\r\n"];
        assert_eq!(frames_of(Framing::Sse, &reads), [pair("", "1\n2")]);
    }

    #[test]
    fn sse_event_without_final_blank_line_is_complete_at_a_clean_end() {
        assert_eq!(frames_of(Framing::Sse, &[b"data: [DONE]"]), [pair("", "[DONE]")]);
    }

    #[test]
    fn ndjson_lines_skip_blank_ones() {
        assert_eq!(
            frames_of(Framing::Ndjson, &[b"{}\n\n [1]\r\n", b"2"]),
            [pair("", "{}"), pair("", " [1]"), pair("", "2")]
        );
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut framer = Framer::new(Framing::Sse);
        let piece = vec![b'x'; 1 << 20];
        let mut frames = Vec::new();
        let refused = (0..40).any(|_| framer.push(&piece, &mut frames).is_err());
        assert!(refused && frames.is_empty());
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_where_reads_are_cut(
            pieces in proptest::collection::vec("(data|event|id|:| ?|\r|\n|\r\n|[a-z{}é]{0,4}){0,8}", 0..20),
            cuts in proptest::collection::vec(0usize..400, 0..12),
            sse in any::<bool>(),
        ) {
            let framing = if sse { Framing::Sse } else { Framing::Ndjson };
            let whole = pieces.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(whole.len())).collect();
            cuts.sort_unstable();
            let mut reads = Vec::new();
            let mut from = 0;
            for cut in cuts {
                reads.push(&whole[from..cut]);
                from = cut;
            }
            reads.push(&whole[from..]);
            prop_assert_eq!(frames_of(framing, &reads), frames_of(framing, &[&whole]));
        }
    }
}
