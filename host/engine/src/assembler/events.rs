//! Writes the server-sent events of a stream, numbered from 0 without gaps.

use super::Assembler;
use super::items::OutputItem;
use cofferdam_protocol::{ObjectWriter, write_value};

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

    /// Writes one event: `type` and `sequence_number`, then the members that `members` writes.
    pub(super) fn write(&mut self, name: &str, members: impl FnOnce(&mut ObjectWriter<'_>)) {
        self.begun |= self.wanted;
        self.write_aside(name, members);
    }

    /// Like [`Self::write`], for an event that is not part of the response and may come before it.
    pub(super) fn write_aside(&mut self, name: &str, members: impl FnOnce(&mut ObjectWriter<'_>)) {
        if !self.wanted {
            return;
        }
        let out = &mut self.out;
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        let mut event = ObjectWriter::new(out);
        event.word("type", name);
        event.value("sequence_number", self.sequence);
        self.sequence += 1;
        members(&mut event);
        event.end();
        out.extend_from_slice(b"\n\n");
    }

    /// Writes `[DONE]`, after which no event follows.
    pub(super) fn end(&mut self) {
        self.out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Takes the events written since the last call. The next batch is probably about as long, so
    /// its buffer is allocated at once and does not have to grow in steps.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let next = Vec::with_capacity(self.out.len());
        std::mem::replace(&mut self.out, next)
    }
}

impl Assembler {
    /// Writes an event about an item. `item_id` and `output_index` come first.
    pub(super) fn item_event(
        &mut self,
        name: &str,
        index: usize,
        members: impl FnOnce(&mut ObjectWriter<'_>, &OutputItem),
    ) {
        let Some(item) = self.items.get(index) else { return };
        self.events.write(name, |event| {
            event.value("item_id", &item.id);
            event.value("output_index", index);
            members(event, item);
        });
    }

    pub(super) fn whole_item_event(&mut self, name: &str, index: usize) {
        let Some(item) = self.items.get(index) else { return };
        self.events.write(name, |event| {
            event.value("output_index", index);
            item.write(event.name("item"));
        });
    }

    /// Writes one `delta` event with a whole text of an item, if there is any, and the `done` event
    /// that repeats it in the member `name`.
    pub(super) fn text_events(&mut self, index: usize, events: &str, name: &str, text: &str) {
        if !text.is_empty() {
            self.item_event(&format!("response.{events}.delta"), index, |event, _| {
                event.value("delta", text);
            });
        }
        // The name may come from a manifest.
        self.item_event(&format!("response.{events}.done"), index, |event, _| {
            write_value(text, event.foreign_name(name));
        });
    }
}
