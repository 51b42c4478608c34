//! `model`: a guest asks a model. A question can run guests that ask again, so this file limits how
//! deep questions nest and how many one instance asks.

use std::sync::Arc;

use crate::bindings::cofferdam::plugin::model::{Answer, Host};
use crate::bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use crate::guest::GuestState;
use crate::imports::Interface;
use crate::services::{Ask, QUESTION_DEPTH_MAX, Question};

/// Questions within one instance's life, which is one call.
const QUESTIONS_MAX: u32 = 16;

pub(super) fn link(interface: &mut Interface<'_>) -> wasmtime::Result<()> {
    interface.func_wrap_async("ask", |mut guest, (request,)| {
        Box::new(async move { Ok((guest.data_mut().ask(request).await?,)) })
    })
}

impl Host for GuestState {
    async fn ask(&mut self, request: Vec<u8>) -> wasmtime::Result<Result<Answer, Failure>> {
        let asked = self.enter_taped("model.ask", &request)?;
        if let Some(answer) = asked.recorded()? {
            return Ok(answer);
        }
        let answer = match self.question(request, false) {
            Ok((ask, question)) => self.account.beside(ask.ask(question)).await,
            Err(failure) => Err(failure),
        };
        asked.note(&answer);
        Ok(answer)
    }
}

impl GuestState {
    /// Counts a question of this guest and returns it with the capability to ask it.
    pub(super) fn question(
        &mut self,
        request: Vec<u8>,
        in_panel: bool,
    ) -> Result<(Arc<dyn Ask>, Question), Failure> {
        let Some(ask) = self.services.ask.clone() else {
            return Err(Failure::new(ErrorKind::PermissionDenied, "No model can be asked here."));
        };
        let depth = self.services.depth.saturating_add(1);
        if depth > QUESTION_DEPTH_MAX {
            return Err(Failure::new(ErrorKind::PreconditionFailed, "Questions to models nest too deeply."));
        }
        if self.asks >= QUESTIONS_MAX {
            return Err(Failure::new(ErrorKind::RateLimitExceeded, "The budget of questions is spent."));
        }
        self.asks += 1;
        let question = Question { plugin: self.plugin.name().to_owned(), request, depth, in_panel };
        Ok((ask, question))
    }
}
