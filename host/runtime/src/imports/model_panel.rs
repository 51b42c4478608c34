//! `model-panel`: a guest asks several models at the same time. A guest has one thread, so the
//! concurrency is on the host's side.

use crate::bindings::cofferdam::plugin::model::Answer;
use crate::bindings::cofferdam::plugin::model_panel::Host;
use crate::bindings::cofferdam::plugin::types::Failure;
use crate::guest::GuestState;
use crate::imports::{Interface, LimitExceeded};
use futures_util::future::join_all;

/// Questions of one call, as in `wit/model-panel.wit`. More is a trap. An instance may put fewer
/// questions, so the rest of a longer list would only take memory of the host.
const PANEL_MAX: usize = 64;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap_async("ask-all", |mut guest, (requests,)| {
        Box::new(async move { Ok((guest.data_mut().ask_all(requests).await?,)) })
    })
}

impl Host for GuestState {
    async fn ask_all(&mut self, requests: Vec<Vec<u8>>) -> wasmtime::Result<Vec<Result<Answer, Failure>>> {
        if requests.len() > PANEL_MAX {
            return Err(LimitExceeded("model-panel.ask-all takes at most 64 questions a call").into());
        }
        let taped = self.enter_taped("model-panel.ask-all", &requests)?;
        if let Some(answers) = taped.recorded()? {
            return Ok(answers);
        }
        let questions: Vec<_> = requests.into_iter().map(|request| self.question(request, true)).collect();
        let asked = questions.into_iter().map(|question| async move {
            let (ask, question) = question?;
            ask.ask(question).await
        });
        let answers = self.account.beside(join_all(asked)).await;
        taped.note(&answers);
        Ok(answers)
    }
}
