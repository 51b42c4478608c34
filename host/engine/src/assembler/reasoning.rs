//! Reasoning items: plain text, summary parts in order, and the seal that ends them. A reasoning
//! item always ends before any other item begins.

use super::items::{self, ItemBody, ItemStatus, OutputItem};
use super::{Assembler, Malformed, PARTS_MAX};
use cofferdam_runtime::wire::{ReasoningSeal, SummaryDelta};

impl Assembler {
    fn open_reasoning(&mut self) -> Result<usize, Malformed> {
        self.close_message(ItemStatus::Completed);
        match self.open_reasoning {
            Some(index) => Ok(index),
            None => {
                let index = self.add(ItemBody::reasoning(), None)?;
                self.open_reasoning = Some(index);
                Ok(index)
            }
        }
    }

    pub(super) fn reasoning_text(&mut self, delta: &str) -> Result<(), Malformed> {
        if delta.is_empty() {
            return Ok(());
        }
        self.grow(delta.len())?;
        let index = self.open_reasoning()?;
        let mut first = false;
        if let Some(ItemBody::Reasoning { text, .. }) = self.items.get_mut(index).map(|item| &mut item.body) {
            first = text.is_none();
            text.get_or_insert_default().push_str(delta);
        }
        if first {
            self.item_event("response.content_part.added", index, |event, _| {
                event.value("content_index", 0);
                items::write_text_part("reasoning_text", "", event.name("part"));
            });
        }
        self.item_event("response.reasoning_text.delta", index, |event, _| {
            items::write_delta(event, 0, delta)
        });
        Ok(())
    }

    pub(super) fn reasoning_summary(&mut self, delta: &SummaryDelta) -> Result<(), Malformed> {
        if delta.part >= PARTS_MAX {
            return Err(Malformed::TooLarge);
        }
        self.grow(delta.text.len())?;
        let index = self.open_reasoning()?;
        let mut part = self.items.get(index).map_or(0, OutputItem::summary_parts);
        // Parts arrive in order, so a higher number ends the open part and starts the next one.
        if part == 0 || delta.part as usize >= part {
            if part > 0 {
                self.close_summary_part(index, part - 1);
            }
            if let Some(ItemBody::Reasoning { summary, .. }) =
                self.items.get_mut(index).map(|item| &mut item.body)
            {
                summary.push(String::new());
            }
            part += 1;
            items::summary_part_event(self, "response.reasoning_summary_part.added", index, part - 1);
        }
        if let Some(ItemBody::Reasoning { summary, .. }) =
            self.items.get_mut(index).map(|item| &mut item.body)
            && let Some(last) = summary.last_mut()
        {
            last.push_str(&delta.text);
        }
        self.item_event("response.reasoning_summary_text.delta", index, |event, _| {
            event.value("summary_index", part as u64 - 1);
            event.value("delta", &delta.text);
        });
        Ok(())
    }

    fn close_summary_part(&mut self, index: usize, part: usize) {
        self.item_event("response.reasoning_summary_text.done", index, |event, item| {
            event.value("summary_index", part);
            event.value("text", item.summary(part));
        });
        items::summary_part_event(self, "response.reasoning_summary_part.done", index, part);
    }

    pub(super) fn seal(&mut self, seal: ReasoningSeal) -> Result<(), Malformed> {
        let empty = seal.encrypted_content.is_none() && seal.signature.is_none() && seal.format.is_none();
        if empty {
            // An empty seal only ends the open item.
            self.close_reasoning(ItemStatus::Completed);
            return Ok(());
        }
        self.grow(seal.encrypted_content.as_ref().map_or(0, String::len))?;
        let index = self.open_reasoning()?;
        if let Some(ItemBody::Reasoning { seal: place, .. }) =
            self.items.get_mut(index).map(|item| &mut item.body)
        {
            *place = Some(seal);
        }
        self.close_reasoning(ItemStatus::Completed);
        Ok(())
    }

    pub(super) fn close_reasoning(&mut self, status: ItemStatus) {
        let Some(index) = self.open_reasoning.take() else { return };
        let summary_parts = self.items.get(index).map_or(0, OutputItem::summary_parts);
        if summary_parts > 0 {
            self.close_summary_part(index, summary_parts - 1);
        }
        if self.items.get(index).is_some_and(OutputItem::has_reasoning_text) {
            self.item_event("response.reasoning_text.done", index, |event, item| {
                event.value("content_index", 0);
                event.value("text", item.reasoning_text());
            });
            self.item_event("response.content_part.done", index, |event, item| {
                event.value("content_index", 0);
                items::write_text_part("reasoning_text", item.reasoning_text(), event.name("part"));
            });
        }
        self.finish_item(index, status);
    }
}
