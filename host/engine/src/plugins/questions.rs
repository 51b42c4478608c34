//! Questions that plugins put to models while they serve a request (`model.ask`). Each question is
//! a request of its own: it takes the same path as a client's request, tools and hooks included, on
//! behalf of the same caller. It writes no usage row, because its cost is part of the client's
//! request. Dropping the client's request drops all of its questions.

mod answer;
mod body;
mod model_capability;
mod pool;

pub use body::check_question;
pub(crate) use model_capability::ModelCapability;

use crate::cost::Amount;
use crate::money::cost_account::CostAccount;
use crate::plugins::http_capability::HttpHistory;
use crate::request::{ResponsesRequest, StopCondition};
use bytes::Bytes;
use cofferdam_runtime::services::{QUESTION_DEPTH_MAX, Question};
use pool::QuestionPool;
use std::sync::Arc;

/// The scope in which the plugins of one request may ask questions, and the place of that request
/// itself among the questions of the client's request.
#[derive(Clone)]
pub(crate) struct QuestionScope {
    pool: Arc<QuestionPool>,
    /// What plugins were refused and sent over HTTP, for the client's request and its questions together.
    http: Arc<HttpHistory>,
    account: Arc<CostAccount>,
    /// The id of the client's response, on whose behalf everything is asked.
    serves: Arc<str>,
    /// 0 for a client's request, 1 for its questions, and so on.
    depth: u8,
    /// The plugins that led to this request, outermost first. Empty for a client's request.
    askers: Vec<String>,
    /// The models of this request. A question that names none is put to these.
    models: Vec<String>,
    /// The client's `provider` object, as JSON. What it rules out is ruled out for questions too.
    provider: Bytes,
}

impl QuestionScope {
    /// The scope of a client's request. `response_id` is the id of its response.
    pub(crate) fn of_client(request: &ResponsesRequest, response_id: &str) -> Self {
        Self {
            pool: Arc::default(),
            http: Arc::default(),
            account: Arc::new(CostAccount::new(None, most(request))),
            serves: Arc::from(response_id),
            depth: 0,
            askers: Vec::new(),
            models: request.models.clone(),
            provider: request.provider.json.clone(),
        }
    }

    /// The scope of `request`, which is a `question` of one of this request's plugins.
    fn question(&self, question: &Question, request: &ResponsesRequest) -> Self {
        let mut askers = self.askers.clone();
        askers.push(question.plugin.clone());
        Self {
            pool: Arc::clone(&self.pool),
            http: Arc::clone(&self.http),
            account: Arc::new(CostAccount::new(Some(Arc::clone(&self.account)), most(request))),
            serves: Arc::clone(&self.serves),
            depth: question.depth,
            askers,
            models: request.models.clone(),
            provider: request.provider.json.clone(),
        }
    }

    /// What plugins were refused and sent over HTTP so far.
    pub(crate) fn http(&self) -> &Arc<HttpHistory> {
        &self.http
    }

    /// The id of the client's response.
    pub(crate) fn response_id(&self) -> &str {
        &self.serves
    }

    /// The depth of this request: 0 for a client's own.
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// Whether this request is at the greatest depth, so that its plugins cannot ask anything.
    pub(crate) fn is_deepest(&self) -> bool {
        self.depth >= QUESTION_DEPTH_MAX
    }

    /// Whether this request is a question of `plugin`, or was asked on its behalf. A hook does not
    /// look at its own questions: a hook that asks a model about every request would recurse until
    /// the depth limit.
    pub(crate) fn is_asked_by(&self, plugin: &str) -> bool {
        self.askers.iter().any(|asker| asker == plugin)
    }

    pub(crate) fn account(&self) -> &Arc<CostAccount> {
        &self.account
    }
}

/// The lowest `max_cost` among the request's stop conditions.
fn most(request: &ResponsesRequest) -> Option<Amount> {
    let limits = request.stop_server_tools_when.iter().filter_map(|condition| match condition {
        StopCondition::MaxCost { max_cost_in_dollars } => Some(Amount::from_dollars(*max_cost_in_dollars)),
        _ => None,
    });
    limits.min()
}
