//! The response to a compaction request: the model's text is the summary, and the client receives
//! it only as one sealed item.

use super::items::{ItemBody, ItemStatus};
use super::{Assembler, Ended, Malformed};
use cofferdam_runtime::wire::Event;
use serde_json::json;

impl Assembler {
    /// Adds an event to the summary. Returns the event if no summary is requested, or if it has to
    /// be applied nevertheless.
    pub(super) fn take_into_summary(&mut self, event: Event) -> Result<Option<Event>, Malformed> {
        let Some(summary) = &mut self.summary else { return Ok(Some(event)) };
        match event {
            Event::TextDelta(delta) => {
                summary.push_str(&delta.text);
                self.grow(delta.text.len())?;
            }
            Event::Usage(_) | Event::Error(_) => return Ok(Some(event)),
            Event::Finish(finish) => {
                self.ended = Some(Ended::of(finish));
            }
            // Reasoning and calls are not part of a summary.
            _ => {}
        }
        Ok(None)
    }

    /// Takes the whole summary; none if none was requested or if it was taken before.
    pub fn take_summary(&mut self) -> Option<String> {
        self.summary.take()
    }

    /// Adds the item with the sealed summary.
    ///
    /// # Errors
    /// [`Malformed`] when the output would be too large.
    pub fn show_compaction(&mut self, sealed: &str) -> Result<(), Malformed> {
        self.grow(sealed.len())?;
        let id = self.identity.item_id("cmp", self.items.len());
        let item = json!({ "type": "compaction", "id": id, "encrypted_content": sealed });
        let json = serde_json::to_vec(&item).map_err(|_| Malformed::InvalidJson)?;
        let index = self.add_as(id, ItemBody::Opaque { json, is_client_call: false }, None)?;
        self.finish_item(index, ItemStatus::Completed);
        Ok(())
    }
}
