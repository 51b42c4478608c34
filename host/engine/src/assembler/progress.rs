//! Events of a server tool's call that report the progress of the questions it asks models. The
//! tool's manifest declares whether its calls have such events, and the word in their names.

use super::items::ItemBody;
use super::{Assembler, Malformed};
use crate::assembler::question_progress::{Note, QuestionProgress};
use cofferdam_protocol::ObjectWriter;
use serde_json::{Map, Value};

impl Assembler {
    /// Writes an event about a question of the call at index `place`, if the call's tool has such
    /// events.
    fn call_event(&mut self, place: usize, name: &str, members: impl FnOnce(&mut ObjectWriter<'_>)) {
        let Some(ItemBody::Tool { item, .. }) = self.items.get(place).map(|item| &item.body) else { return };
        let Some(word) = &item.questions else { return };
        let name = format!("response.{word}.{name}");
        self.item_event(&name, place, |event, _| members(event));
    }

    /// Reports the progress of a question that the call at index `place` asked.
    ///
    /// # Errors
    /// [`Malformed`] when the answers of all questions exceed the limits of a response.
    pub(crate) fn show_progress(
        &mut self,
        place: usize,
        progress: &QuestionProgress,
    ) -> Result<(), Malformed> {
        let QuestionProgress { in_panel, model, note } = progress;
        if let Note::Answered { text, reasoning } = note {
            self.grow(text.len() + reasoning.len())?;
        }
        if *in_panel {
            self.show_panel(place, model, note)
        } else {
            self.show_analysis(place, model, note)
        }
        Ok(())
    }

    /// Renders progress in a panel. An answer arrives in one piece, because it may come from a
    /// second model after the first one failed midway.
    fn show_panel(&mut self, place: usize, model: &str, note: &Note) {
        let mut panel = |name: &str, value: Option<(&str, &str)>, status: Option<u16>| {
            self.call_event(place, name, |event| {
                event.value("model", model);
                value.into_iter().for_each(|(name, value)| event.value(name, value));
                status.into_iter().for_each(|status| event.value("status_code", status));
            });
        };
        match note {
            Note::Asked => panel("panel.added", None, None),
            Note::Answered { text, reasoning } => {
                if !reasoning.is_empty() {
                    panel("panel.reasoning.delta", Some(("delta", reasoning)), None);
                }
                if !text.is_empty() {
                    panel("panel.delta", Some(("delta", text)), None);
                }
                panel("panel.completed", Some(("content", text)), None);
            }
            Note::Failed { message, status } => {
                panel("panel.failed", Some(("error", message)), Some(*status));
            }
        }
    }

    /// Renders progress of an analysis. A failed analysis has no event; the end of the call reports
    /// the failure.
    fn show_analysis(&mut self, place: usize, model: &str, note: &Note) {
        match note {
            Note::Asked => {
                self.call_event(place, "analysis.in_progress", |event| event.value("judge_model", model));
            }
            Note::Answered { text, .. } => {
                let Ok(analysis) = serde_json::from_str::<Map<String, Value>>(text) else { return };
                self.call_event(place, "analysis.completed", |event| event.value("analysis", analysis));
            }
            Note::Failed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
