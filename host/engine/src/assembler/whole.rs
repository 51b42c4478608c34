//! Items that arrive in one piece, or in pieces that replace each other: pictures and opaque items.

use super::items::{ItemBody, ItemStatus, OutputItem, is_client_call, opaque_id, tag_of};
use super::replay::opened;
use super::{Assembler, Malformed, hosted_calls};
use cofferdam_runtime::wire::Image;
use serde_json::{Map, Value};
use std::sync::Arc;

impl Assembler {
    fn open_image(&mut self, key: u32) -> Result<usize, Malformed> {
        // A picture mostly ends an answer. So the text before it gets the citations that wait.
        self.is_ending = true;
        self.close_reasoning(ItemStatus::Completed);
        self.close_message(ItemStatus::Completed);
        let index = self.add(ItemBody::Image { result: None }, Some(key))?;
        for name in
            ["response.image_generation_call.in_progress", "response.image_generation_call.generating"]
        {
            self.item_event(name, index, |_, _| {});
        }
        Ok(index)
    }

    pub(super) fn image(&mut self, image: Image, done: bool) -> Result<(), Malformed> {
        self.grow(image.base64.len())?;
        let is_this = |item: &OutputItem| item.key == Some(image.key) && item.is_open_image();
        let open = self.items.iter().position(is_this);
        let index = match open {
            Some(index) => index,
            None => self.open_image(image.key)?,
        };
        if !done {
            self.item_event("response.image_generation_call.partial_image", index, |event, _| {
                event.value("partial_image_index", image.partial_index);
                event.value("partial_image_b64", &image.base64);
            });
            return Ok(());
        }
        if let Some(ItemBody::Image { result }) = self.items.get_mut(index).map(|item| &mut item.body) {
            *result = Some(image.base64);
        }
        self.item_event("response.image_generation_call.completed", index, |_, _| {});
        self.finish_item(index, ItemStatus::Completed);
        Ok(())
    }

    pub(super) fn opaque(&mut self, item: &[u8]) -> Result<(), Malformed> {
        self.grow(item.len())?;
        let tag = tag_of(item).ok_or(Malformed::InvalidJson)?;
        if !self.permits.allow(&tag) {
            return Err(Malformed::Forged);
        }
        self.is_ending |= is_client_call(&tag) || tag == "image_generation_call";
        self.close_reasoning(ItemStatus::Completed);
        self.close_message(ItemStatus::Completed);
        let item: Map<String, Value> = serde_json::from_slice(item).map_err(|_| Malformed::InvalidJson)?;
        let open = self.items.iter().position(OutputItem::is_open_image);
        match open.filter(|_| tag == "image_generation_call") {
            Some(index) => self.end_image(index, item),
            None => self.add_opaque(item)?,
        }
        Ok(())
    }

    fn add_opaque(&mut self, mut item: Map<String, Value>) -> Result<(), Malformed> {
        let id = opaque_id(&item, &self.identity, &self.items);
        item.insert("id".to_owned(), Value::from(id.as_str()));
        match hosted_calls::form(&item).map(Arc::new) {
            Some(call) => {
                let index = self.add_as(id, opened(&item, Some(&call)), None)?;
                self.finished_call_events(index, &item, &call);
                self.finish_opaque(index, &item);
            }
            None => {
                let index = self.add_as(id, ItemBody::opaque(&item), None)?;
                self.finish_item(index, ItemStatus::Completed);
            }
        }
        Ok(())
    }

    /// Puts the finished item of a picture in the place of its partial versions. A provider makes one
    /// picture after the other, so it belongs to the first one that is open.
    fn end_image(&mut self, index: usize, mut item: Map<String, Value>) {
        let id = self.items.get(index).map_or("", |image| &image.id);
        item.insert("id".to_owned(), Value::from(id));
        let call = hosted_calls::form(&item);
        for events in call.iter().filter_map(|call| call.end_events(&item)) {
            self.item_events(events, index);
        }
        self.finish_opaque(index, &item);
    }

    fn finish_opaque(&mut self, index: usize, item: &Map<String, Value>) {
        if let Some(place) = self.items.get_mut(index) {
            place.body = ItemBody::opaque(item);
        }
        self.finish_item(index, ItemStatus::Completed);
    }
}
