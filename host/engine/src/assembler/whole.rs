//! Items that arrive in one piece, or in pieces that replace each other: pictures and opaque items.

use super::items::{ItemBody, ItemStatus, tag_of};
use super::{Assembler, Malformed};
use cofferdam_runtime::wire::Image;

impl Assembler {
    fn open_image(&mut self, key: u32) -> Result<usize, Malformed> {
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
        let open = self.items.iter().position(|item| item.is_open_image(image.key));
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
        self.close_reasoning(ItemStatus::Completed);
        self.close_message(ItemStatus::Completed);
        let tag = tag_of(item).ok_or(Malformed::InvalidJson)?;
        if !self.permits.allow(&tag) {
            return Err(Malformed::Forged);
        }
        let body = ItemBody::opaque(item, &self.identity, &self.items)?;
        let index = self.add(body, None)?;
        self.finish_item(index, ItemStatus::Completed);
        Ok(())
    }
}
