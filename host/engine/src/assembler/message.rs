//! Messages: their texts, refusals and citations, part by part.

use super::items::{self, ContentPart, ItemBody, ItemStatus, OutputItem};
use super::json::compact_json;
use super::{Assembler, Malformed, PARTS_MAX};
use cofferdam_runtime::wire::TextDelta;

impl Assembler {
    pub(super) fn open_message(&mut self, phase: Option<String>) -> Result<usize, Malformed> {
        let index = self.add(ItemBody::Message { phase, parts: Vec::new() }, None)?;
        self.open_message = Some(index);
        Ok(index)
    }

    /// The index of the open message and of its last part, which is opened if necessary so that it
    /// is a refusal or a text as requested.
    fn part(&mut self, refusal: bool) -> Result<(usize, usize), Malformed> {
        self.close_reasoning(ItemStatus::Completed);
        let index = match self.open_message {
            Some(index) => index,
            None => self.open_message(None)?,
        };
        let parts = self.items.get(index).map_or(&[][..], OutputItem::parts);
        let count = parts.len();
        match parts.last() {
            Some(last) if last.is_refusal() == refusal => return Ok((index, count - 1)),
            Some(_) => self.close_part(index, count - 1),
            None => {}
        }
        if count >= PARTS_MAX as usize {
            return Err(Malformed::TooLarge);
        }
        let part = if refusal { ContentPart::Refusal(String::new()) } else { ContentPart::text() };
        if let Some(ItemBody::Message { parts, .. }) = self.items.get_mut(index).map(|item| &mut item.body) {
            parts.push(part);
        }
        self.part_event("response.content_part.added", index, count);
        Ok((index, count))
    }

    fn part_event(&mut self, name: &str, index: usize, part: usize) {
        self.item_event(name, index, |event, item| {
            event.value("content_index", part);
            if let Some(part) = item.parts().get(part) {
                part.write(event.name("part"));
            }
        });
    }

    pub(super) fn text(&mut self, delta: TextDelta) -> Result<(), Malformed> {
        if delta.text.is_empty() && delta.logprobs.is_empty() {
            return Ok(());
        }
        self.grow(delta.text.len() + delta.logprobs.len())?;
        let logprobs = items::logprob_members(&delta.logprobs)?;
        let (index, part) = self.part(false)?;
        if let Some(ContentPart::Text { text, logprobs: all, .. }) =
            self.items.get_mut(index).and_then(|item| item.part_mut(part))
        {
            text.push_str(&delta.text);
            items::append_members(all, &logprobs);
        }
        self.item_event("response.output_text.delta", index, |event, _| {
            items::write_delta(event, part, &delta.text);
            items::write_logprobs(event, &logprobs);
        });
        Ok(())
    }

    pub(super) fn refusal(&mut self, delta: &str) -> Result<(), Malformed> {
        self.grow(delta.len())?;
        let (index, part) = self.part(true)?;
        if let Some(ContentPart::Refusal(text)) =
            self.items.get_mut(index).and_then(|item| item.part_mut(part))
        {
            text.push_str(delta);
        }
        self.item_event("response.refusal.delta", index, |event, _| items::write_delta(event, part, delta));
        Ok(())
    }

    pub(super) fn annotation(&mut self, annotation: &[u8]) -> Result<(), Malformed> {
        self.grow(annotation.len())?;
        let annotation = compact_json(annotation, b'{').ok_or(Malformed::InvalidJson)?;
        let (index, part) = self.part(false)?;
        self.write_annotation(index, part, annotation);
        Ok(())
    }

    pub(super) fn write_annotation(&mut self, index: usize, part: usize, annotation: Vec<u8>) {
        let mut place = 0;
        if let Some(ContentPart::Text { annotations, .. }) =
            self.items.get_mut(index).and_then(|item| item.part_mut(part))
        {
            place = annotations.len();
            annotations.push(annotation.clone());
        }
        self.item_event("response.output_text.annotation.added", index, |event, _| {
            event.value("content_index", part);
            event.value("annotation_index", place);
            event.raw("annotation", &annotation);
        });
    }

    fn close_part(&mut self, index: usize, part: usize) {
        let refusal = self
            .items
            .get(index)
            .and_then(|item| item.parts().get(part))
            .is_some_and(ContentPart::is_refusal);
        let name = if refusal { "response.refusal.done" } else { "response.output_text.done" };
        self.annotate_text(index, part);
        self.item_event(name, index, |event, item| {
            event.value("content_index", part);
            if let Some(part) = item.parts().get(part) {
                part.write_done(event);
            }
        });
        self.part_event("response.content_part.done", index, part);
    }

    pub(super) fn close_message(&mut self, status: ItemStatus) {
        let Some(index) = self.open_message.take() else { return };
        let count = self.items.get(index).map_or(0, |item| item.parts().len());
        if count > 0 {
            self.close_part(index, count - 1);
        }
        self.finish_item(index, status);
    }
}
