//! The event lines of a stream, numbered from 0 without gaps.

use super::json::{number, raw};

/// Events written and not yet taken.
pub(super) struct Events {
    wanted: bool,
    begun: bool,
    sequence: u64,
    out: Vec<u8>,
}

impl Events {
    /// `wanted` is false for a request that is not streamed: nothing is written then.
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, begun: false, sequence: 0, out: Vec::new() }
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the response has been said to exist.
    pub(super) fn have_begun(&self) -> bool {
        self.begun
    }

    /// Writes one event: `type` and `sequence_number`, then what `members` adds,
    /// each member with a leading comma.
    pub(super) fn write(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>)) {
        self.begun |= self.wanted;
        self.write_aside(name, members);
    }

    /// The same for an event that is no part of the response and may come before it.
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

    /// Writes the line that says that no event follows.
    pub(super) fn end(&mut self) {
        raw(&mut self.out, "data: [DONE]\n\n");
    }

    /// What was written since the last call. What comes next is about as long, so
    /// its buffer is made in one piece instead of growing step by step.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let next = Vec::with_capacity(self.out.len());
        std::mem::replace(&mut self.out, next)
    }
}
