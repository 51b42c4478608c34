//! The capability through which plugins ask models: from the text a plugin wrote to its answer.

use super::{QuestionScope, answer, body};
use crate::Engine;
use crate::assembler::question_progress::{Note, QuestionProgress, Reporter};
use crate::caller::Caller;
use crate::plugins::http_capability::HttpCapability;
use crate::refusal::Refusal;
use crate::request::RequestBounds;
use crate::timeline::{FactName, StepType, Timeline, outcome_of};
use cofferdam_runtime::services::{Ask, Opening, Question};
use cofferdam_runtime::wire::{Answer, ErrorKind, Failure};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time for one question, with the wait for its permit. The request it is asked for may
/// end sooner.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(120);

/// The capability for the plugins of one request.
#[derive(Clone)]
pub(crate) struct ModelCapability {
    engine: Arc<Engine>,
    caller: Caller,
    questions: QuestionScope,
    /// What was sent for the plugins that ask.
    http: Arc<HttpCapability>,
    reporter: Option<Reporter>,
    timeline: Arc<Timeline>,
}

impl ModelCapability {
    /// Questions on behalf of the request whose scope is `questions`.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        caller: &Caller,
        questions: &QuestionScope,
        http: &Arc<HttpCapability>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            caller: caller.clone(),
            questions: questions.clone(),
            http: Arc::clone(http),
            reporter: None,
            timeline: Arc::default(),
        }
    }

    /// A copy that also reports the progress of its questions.
    pub(crate) fn reporting(&self, reporter: Reporter) -> Self {
        Self { reporter: Some(reporter), ..self.clone() }
    }

    /// A copy whose questions are noted in `timeline`.
    pub(crate) fn noted_in(&self, timeline: &Timeline) -> Self {
        Self { timeline: Arc::new(timeline.here()), ..self.clone() }
    }

    /// The scope of the questions.
    pub(crate) fn questions(&self) -> &QuestionScope {
        &self.questions
    }

    /// What the plugin wrote, without the values of secrets that were sent for it.
    fn searched(&self, question: &Question) -> Result<Vec<u8>, Failure> {
        let plugin = self.engine.parts.plugins.get(&question.plugin);
        let clean = plugin.and_then(|plugin| {
            self.http.clean(plugin, question.request.clone(), |search, written| search.json(written))
        });
        let withheld = "The question contained a secret and was withheld.";
        clean.ok_or_else(|| Failure::new(ErrorKind::InvalidRequest, withheld))
    }

    async fn answer(&self, question: Question) -> Result<Answer, Failure> {
        let Engine { entry_ids, parts, .. } = &*self.engine;
        let request = body::read(
            &self.searched(&question)?,
            &self.questions.models,
            &self.questions.provider,
            entry_ids,
            &parts.prompts,
            RequestBounds::of_client(parts.items_max),
        )?;
        let model = request.models.first().cloned().unwrap_or_default();
        let in_panel = question.in_panel;
        let report = async |note: Note| {
            if let Some(reporter) = &self.reporter {
                reporter.report(QuestionProgress { in_panel, model: model.clone(), note }).await;
            }
        };
        report(Note::Asked).await;
        let scope = self.questions.question(&question, &request);
        let account = Arc::clone(scope.account());
        let known = self.engine.catalog().find(&model).map(|model| model.id.as_str());
        let name = ["question", known.unwrap_or("other model")];
        let step = self.timeline.begin(StepType::Question, &name, &[FactName::Model.name(known)]);
        let answered = async {
            let turn = self.questions.pool.turn(question.depth).await?;
            // Checked after the wait, because other questions may have spent meanwhile.
            if self.questions.account.is_overdrawn() {
                let message = "This request has cost as much as it may.";
                return Err(Refusal::new(402, ErrorKind::PaymentRequired, message));
            }
            let (engine, caller) = (Arc::clone(&self.engine), self.caller.clone());
            let body = engine
                .answer_question(caller, request, scope, QUESTION_TIME_MAX, self.timeline.under(step))
                .await;
            drop(turn);
            Ok(answer::read(&body?, &account)?)
        };
        let answered = match timeout(QUESTION_TIME_MAX, answered).await {
            Ok(answered) => answered,
            Err(_elapsed) => Err(Refusal::new(504, ErrorKind::Timeout, "The model took too long to answer.")),
        };
        self.timeline.end(step, outcome_of(&answered), &[]);
        match answered {
            Ok((answer, reasoning)) => {
                report(Note::Answered { text: answer.text.clone(), reasoning }).await;
                Ok(answer)
            }
            Err(refusal) => {
                let (message, status) = (refusal.message.clone(), refusal.status);
                report(Note::Failed { message, status }).await;
                Err(failure(refusal))
            }
        }
    }
}

impl Ask for ModelCapability {
    fn ask(&self, question: Question) -> Opening<'_, Result<Answer, Failure>> {
        Box::pin(self.answer(question))
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::from_failure(&failure)
    }
}

fn failure(refusal: Refusal) -> Failure {
    let retry_after_ms = refusal.retry_after_s.map(|seconds| seconds.saturating_mul(1000));
    Failure { retry_after_ms, ..Failure::new(refusal.kind, refusal.message) }
}
