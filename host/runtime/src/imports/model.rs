//! `model`: a guest asks a model. The one loop of the host is bounded here: how
//! deep questions nest and how many one instance asks.

use crate::bindings::cofferdam::plugin::model::{Answer, Host};
use crate::bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use crate::instance::GuestState;
use crate::services::Question;

/// A guest may ask, and a guest that serves that question may ask once more.
pub(crate) const DEPTH_MAX: u8 = 2;
/// Questions within one instance's life.
const QUESTIONS_MAX: u32 = 16;

impl Host for GuestState {
    async fn ask(&mut self, request: Vec<u8>) -> wasmtime::Result<Result<Answer, Failure>> {
        self.enter_host()?;
        let Some(ask) = self.services.ask.clone() else {
            return Ok(Err(Failure::new(ErrorKind::PermissionDenied, "No model can be asked here.")));
        };
        let depth = self.services.depth.saturating_add(1);
        if depth > DEPTH_MAX {
            return Ok(Err(Failure::new(
                ErrorKind::PreconditionFailed,
                "Questions to models nest too deeply.",
            )));
        }
        if self.asks >= QUESTIONS_MAX {
            return Ok(Err(Failure::new(ErrorKind::RateLimitExceeded, "The budget of questions is spent.")));
        }
        self.asks += 1;
        let question = Question { plugin: self.plugin.name().to_owned(), request, depth };
        Ok(self.account.beside(ask.ask(question)).await)
    }
}
