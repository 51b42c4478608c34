//! Writes the server-sent events of a stream, numbered from 0 without gaps.

use super::json::{number, raw};

/// Collects written events until they are taken.
pub(super) struct Events {
    wanted: bool,
    begun: bool,
    sequence: u64,
    out: Vec<u8>,
}

impl Events {
    /// With `wanted` false, for a request without streaming, nothing is written.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, begun: false, sequence: 0, out: Vec::new() }
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether an event about the response has been written.
    pub(super) fn have_begun(&self) -> bool {
        self.begun
    }

    /// Writes one event: `type` and `sequence_number`, then the members that `members` writes, each
    /// with a leading comma.
    pub(super) fn write(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>)) {
        self.begun |= self.wanted;
        self.write_aside(name, members);
    }

    /// Like [`Self::write`], for an event that is not part of the response and may come before it.
    pub(super) fn write_aside(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>)) {
        if !self.wanted {
            return;
        }
        let out = &mut self.out;
        raw(out, "event: ");
        raw(out, name);
        raw(out, "\ndata: {\"type\":\"");
        raw(out, name);
        raw(out, "\",\"sequence_number\":");
        number(out, self.sequence);
        self.sequence += 1;
        members(out);
        raw(out, "}\n\n");
    }

    /// Writes `[DONE]`, after which no event follows.
    pub(super) fn end(&mut self) {
        raw(&mut self.out, "data: [DONE]\n\n");
    }

    /// Takes the events written since the last call. The next batch is probably about as long, so
    /// its buffer is allocated at once and does not have to grow in steps.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let next = Vec::with_capacity(self.out.len());
        std::mem::replace(&mut self.out, next)
    }
}
