//! Cuts recorded event streams into frames as the host does, so that tests can split a recording
//! into network reads at any byte.

/// The name and the data of one event.
type Frame = (String, Vec<u8>);

/// Cuts a stream of server-sent events, given in pieces, into frames.
#[derive(Default)]
pub struct Framer {
    line: Vec<u8>,
    name: String,
    data: Option<Vec<u8>>,
}

impl Framer {
    /// Takes the next piece and returns the frames that it completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                frames.extend(self.take_line(line.trim_ascii_end()));
            }
        }
        frames
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Frame> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return self.data.take().map(|data| (name, data));
        }
        let value = |rest: &[u8]| rest.strip_prefix(b" ").unwrap_or(rest).to_vec();
        if let Some(rest) = line.strip_prefix(b"event:") {
            self.name = String::from_utf8_lossy(&value(rest)).into_owned();
        } else if let Some(rest) = line.strip_prefix(b"data:") {
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend(value(rest));
                }
                None => self.data = Some(value(rest)),
            }
        }
        None
    }
}

/// The frames that each network read in `reads` completes. Reads that complete no frame are left
/// out, because the host does not call a decoder for them.
#[must_use]
pub fn frames_per_read(reads: &[&[u8]]) -> Vec<Vec<Frame>> {
    let mut framer = Framer::default();
    reads.iter().map(|read| framer.push(read)).filter(|frames| !frames.is_empty()).collect()
}
