//! The answer to a request for compaction: what the model says is the summary, of which the client sees nothing but
//! one sealed item.

use super::items::{Body, Status};
use super::{Assembler, Ended, Malformed};
use cofferdam_runtime::wire::Event;
use serde_json::json;

impl Assembler {
    /// Takes an event into the summary; gives it back where there is none to be made.
    pub(super) fn take_into_summary(&mut self, event: Event) -> Result<Option<Event>, Malformed> {
        let Some(summary) = &mut self.summary else { return Ok(Some(event)) };
        match event {
            Event::TextDelta(delta) => {
                summary.push_str(&delta.text);
                self.grow(delta.text.len())?;
            }
            Event::Usage(_) | Event::Error(_) => return Ok(Some(event)),
            Event::Finish(finish) => {
                self.ended = Some(Ended { reason: finish.reason, service_tier: finish.service_tier });
            }
            // Reasoning and calls are no part of a summary.
            _ => {}
        }
        Ok(None)
    }

    /// The whole summary, once; none where none was asked for.
    pub fn take_summary(&mut self) -> Option<String> {
        self.summary.take()
    }

    /// Shows the summary as it was sealed.
    ///
    /// # Errors
    /// [`Malformed`] when there is no room for it.
    pub fn show_compaction(&mut self, sealed: &str) -> Result<(), Malformed> {
        self.grow(sealed.len())?;
        let id = self.identity.item_id("cmp", self.items.len());
        let item = json!({ "type": "compaction", "id": id, "encrypted_content": sealed });
        let json = serde_json::to_vec(&item).map_err(|_| Malformed::InvalidJson)?;
        let index = self.add(Body::Opaque { id, json, is_client_call: false }, None)?;
        self.finish_item(index, Status::Completed);
        Ok(())
    }
}
