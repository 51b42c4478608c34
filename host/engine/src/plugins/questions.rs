//! Questions that plugins put to models while they serve a request. Each is a request of its own that goes the
//! whole way of a client's, tools and hooks included, on the same caller's behalf; it leaves no row, for what
//! it costs is part of the client's request. Dropping that request drops all of its questions.

mod answer;
mod body;
mod model_capability;
mod pool;

pub(crate) use model_capability::Door;

use crate::cost::Amount;
use crate::money::cost_account::Bill;
use crate::request::{ResponsesRequest, StopCondition};
use bytes::Bytes;
use cofferdam_runtime::services::{QUESTION_DEPTH_MAX, Question};
use pool::Pool;
use std::sync::Arc;

/// What the plugins of one request may ask, and on whose behalf that request is made itself.
#[derive(Clone)]
pub(crate) struct Asking {
    pool: Arc<Pool>,
    bill: Arc<Bill>,
    /// The response that everything is asked for: the client's.
    serves: Arc<str>,
    /// 0 for a client's own request.
    depth: u8,
    /// The plugins that asked this request, each on behalf of the one before it.
    askers: Vec<String>,
    /// Who is asked where a question does not say: the models of this request.
    models: Vec<String>,
    /// The client's `provider` object: what it rules out is ruled out for questions too.
    provider: Bytes,
}

impl Asking {
    /// For a client's request that is answered with the response of this id.
    pub(crate) fn of_client(request: &ResponsesRequest, response_id: &str) -> Self {
        Self {
            pool: Arc::default(),
            bill: Arc::new(Bill::new(None, most(request))),
            serves: Arc::from(response_id),
            depth: 0,
            askers: Vec::new(),
            models: request.models.clone(),
            provider: request.provider.json.clone(),
        }
    }

    /// For `request`, which is a question of one of this request's plugins.
    fn question(&self, question: &Question, request: &ResponsesRequest) -> Self {
        let mut askers = self.askers.clone();
        askers.push(question.plugin.clone());
        Self {
            pool: Arc::clone(&self.pool),
            bill: Arc::new(Bill::new(Some(Arc::clone(&self.bill)), most(request))),
            serves: Arc::clone(&self.serves),
            depth: question.depth,
            askers,
            models: request.models.clone(),
            provider: request.provider.json.clone(),
        }
    }

    /// The id of the client's response.
    pub(crate) fn response_id(&self) -> &str {
        &self.serves
    }

    /// How deep this request is: 0 for a client's own.
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// Whether plugins of this request can ask nothing any more.
    pub(crate) fn is_deepest(&self) -> bool {
        self.depth >= QUESTION_DEPTH_MAX
    }

    /// Whether this request is a question of that plugin, or was asked on its behalf. A hook does not look at
    /// its own questions: one that asks a model about every request would never come to an end.
    pub(crate) fn is_asked_by(&self, plugin: &str) -> bool {
        self.askers.iter().any(|asker| asker == plugin)
    }

    /// What the questions of this request's plugins cost so far, finished or not.
    pub(crate) fn cost(&self) -> Amount {
        self.bill.questions()
    }

    /// What they cost the caller, here and at providers that it pays itself.
    pub(crate) fn cost_everywhere(&self) -> Amount {
        self.bill.questions().plus(self.bill.questions_elsewhere())
    }

    pub(crate) fn bill(&self) -> &Arc<Bill> {
        &self.bill
    }
}

/// What a request may cost at most, by its own stop conditions.
fn most(request: &ResponsesRequest) -> Option<Amount> {
    let limits = request.stop_server_tools_when.iter().filter_map(|condition| match condition {
        StopCondition::MaxCost { max_cost_in_dollars } => Some(Amount::from_dollars(*max_cost_in_dollars)),
        _ => None,
    });
    limits.min()
}
