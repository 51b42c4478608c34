//! Keeps the last requests and those that run.

use super::follow::StepSender;
use super::step::Steps;
use super::{
    RecordedRequest, RecordedTimeline, RequestBeginning, RequestHead, SharedTimeline, Timeline, TimelineState,
};
use crate::refusal::Refusal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// The most finished requests that may be kept.
pub const RECORDED_MAX: usize = 4096;
/// The most bytes of all finished requests that are kept.
const RECORDED_BYTES_MAX: usize = 8 << 20;
/// The most finished requests that wait for one subscriber. It is told how many more it has missed.
const EVENTS_MAX: usize = 256;

/// The recorder of requests: the last finished ones, and those that run.
pub struct RequestRecorder {
    /// How many finished requests are kept. 0: nothing is recorded.
    keeps: AtomicUsize,
    finished: Mutex<FinishedRequests>,
    running: Mutex<RunningRequests>,
    events: broadcast::Sender<Arc<FinishedRequest>>,
}

#[derive(Default)]
struct FinishedRequests {
    /// Oldest first.
    requests: VecDeque<Arc<FinishedRequest>>,
    bytes: usize,
    last_number: u64,
}

#[derive(Default)]
struct RunningRequests {
    requests: BTreeMap<u64, Weak<SharedTimeline>>,
    last_key: u64,
}

/// A finished request.
struct FinishedRequest {
    number: u64,
    us: u64,
    bytes: usize,
    timeline: Arc<SharedTimeline>,
}

/// Which requests are listed.
#[derive(Clone, Debug)]
pub struct RequestFilter {
    /// Only requests with a smaller number.
    pub before: Option<u64>,
    /// Only requests with a greater number.
    pub after: Option<u64>,
    /// The most requests.
    pub limit: usize,
    /// Only requests that failed.
    pub failed: bool,
    /// Only requests that asked for this model, or were answered by it.
    pub model: Option<String>,
    /// Only requests of the key with this id.
    pub key: Option<String>,
    /// Only requests of the workspace with this id.
    pub workspace: Option<String>,
}

impl Default for RequestFilter {
    /// The last 100 requests.
    fn default() -> Self {
        let (before, after, limit, failed) = (None, None, 100, false);
        Self { before, after, limit, failed, model: None, key: None, workspace: None }
    }
}

impl RequestFilter {
    fn takes(&self, request: &RecordedRequest) -> bool {
        let is =
            |wanted: &Option<String>, found: Option<&String>| wanted.is_none() || wanted.as_ref() == found;
        let RecordedRequest { requested_model, model, key_id, workspace_id, .. } = request;
        (!self.failed || request.is_failed())
            && (is(&self.model, requested_model.as_ref()) || is(&self.model, model.as_ref()))
            && is(&self.key, Some(key_id))
            && is(&self.workspace, Some(workspace_id))
    }

    fn spans(&self, number: u64) -> bool {
        self.before.is_none_or(|before| number < before) && self.after.is_none_or(|after| number > after)
    }
}

/// What a subscriber is told.
#[derive(Clone, Debug)]
pub enum RequestEvent {
    /// A request has ended.
    Finished(Box<RecordedRequest>),
    /// So many requests ended that this subscriber was not told of, because it was too slow.
    Lost(u64),
}

/// Hands out the requests that end from now on.
pub struct RequestSubscription(broadcast::Receiver<Arc<FinishedRequest>>);

impl RequestSubscription {
    /// The next event. `None` after the end of the recorder.
    pub async fn next(&mut self) -> Option<RequestEvent> {
        match self.0.recv().await {
            Ok(finished) => Some(RequestEvent::Finished(Box::new(finished.head()))),
            Err(RecvError::Lagged(lost)) => Some(RequestEvent::Lost(lost)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Default for RequestRecorder {
    /// A recorder that keeps nothing until [`Self::keep`] is called.
    fn default() -> Self {
        Self {
            keeps: AtomicUsize::new(0),
            finished: Mutex::default(),
            running: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
        }
    }
}

impl RequestRecorder {
    /// Sets how many finished requests are kept, at most [`RECORDED_MAX`]. With 0 nothing is
    /// recorded. Older requests beyond the new number are dropped.
    pub fn keep(&self, requests: usize) {
        self.keeps.store(requests.min(RECORDED_MAX), Ordering::Relaxed);
        self.finished().shorten(requests);
    }

    /// How many finished requests are kept.
    pub fn keeps(&self) -> usize {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Finished requests, the last one first.
    pub fn recent(&self, filter: &RequestFilter) -> Vec<RecordedRequest> {
        let requests: Vec<Arc<FinishedRequest>> = {
            let finished = self.finished();
            finished.requests.iter().rev().filter(|it| filter.spans(it.number)).cloned().collect()
        };
        let heads = requests.iter().map(|finished| finished.head());
        heads.filter(|head| filter.takes(head)).take(filter.limit).collect()
    }

    /// The requests that run, in the order in which they began.
    pub fn running(&self) -> Vec<RecordedRequest> {
        self.running_now().iter().map(|timeline| timeline.head(None)).collect()
    }

    /// One request with its steps, finished or running, by the id of its answer.
    pub fn one(&self, request_id: &str) -> Option<RecordedTimeline> {
        let finished = {
            let finished = self.finished();
            let is_it = |it: &&Arc<FinishedRequest>| &*it.timeline.begun.request_id == request_id;
            finished.requests.iter().rev().find(is_it).cloned()
        };
        if let Some(finished) = finished {
            return Some(finished.document());
        }
        let running = self.running_now();
        running.iter().find(|it| &*it.begun.request_id == request_id).map(|it| it.document(None))
    }

    /// Subscribes to the requests that end from now on.
    pub fn subscribe(&self) -> RequestSubscription {
        RequestSubscription(self.events.subscribe())
    }

    /// Begins to record a request, if requests are kept or someone wants its steps.
    pub(crate) fn begin(
        self: &Arc<Self>,
        begun: impl FnOnce() -> RequestBeginning,
        follower: Option<StepSender>,
        is_wanted: bool,
    ) -> RequestGuard {
        if self.keeps() == 0 && follower.is_none() && !is_wanted {
            return RequestGuard { recorder: Arc::clone(self), key: 0, shared: None };
        }
        let state =
            TimelineState { head: RequestHead::default(), steps: Steps::new(), follower, at_end: None };
        let shared = Arc::new(SharedTimeline {
            begun: begun(),
            began: Instant::now(),
            response_bytes: AtomicU64::new(0),
            state: Mutex::new(state),
        });
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.last_key += 1;
        let key = running.last_key;
        running.requests.insert(key, Arc::downgrade(&shared));
        drop(running);
        RequestGuard { recorder: Arc::clone(self), key, shared: Some(shared) }
    }

    fn finish(&self, key: u64, timeline: Arc<SharedTimeline>) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).requests.remove(&key);
        let us = timeline.now_us();
        let (at_end, bytes) = {
            let mut state = timeline.lock();
            state.steps.close(us);
            // Dropping the sender tells the follower that the request is over.
            state.follower = None;
            let bytes = size_of::<SharedTimeline>() + state.steps.bytes() + state.head.bytes();
            (state.at_end.take(), bytes)
        };
        let mut finished = FinishedRequest { number: 0, us, bytes, timeline };
        if let Some(at_end) = at_end {
            at_end(finished.document());
        }
        let keeps = self.keeps();
        if keeps == 0 {
            return;
        }
        let mut kept = self.finished();
        kept.last_number += 1;
        finished.number = kept.last_number;
        kept.bytes += finished.bytes;
        let finished = Arc::new(finished);
        kept.requests.push_back(Arc::clone(&finished));
        kept.shorten(keeps);
        drop(kept);
        if self.events.receiver_count() > 0 {
            // Without a receiver there is nothing to tell.
            drop(self.events.send(finished));
        }
    }

    fn finished(&self) -> MutexGuard<'_, FinishedRequests> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_now(&self) -> Vec<Arc<SharedTimeline>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.requests.values().filter_map(Weak::upgrade).collect()
    }
}

impl FinishedRequests {
    fn shorten(&mut self, keeps: usize) {
        while self.requests.len() > keeps || self.bytes > RECORDED_BYTES_MAX {
            let Some(oldest) = self.requests.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(oldest.bytes);
        }
    }
}

impl FinishedRequest {
    fn head(&self) -> RecordedRequest {
        RecordedRequest { us: self.us, ..self.timeline.head(Some(self.number)) }
    }

    fn document(&self) -> RecordedTimeline {
        let mut document = self.timeline.document(Some(self.number));
        document.request.us = self.us;
        document
    }
}

/// A request that is recorded. When this is dropped, the request is over.
pub(crate) struct RequestGuard {
    recorder: Arc<RequestRecorder>,
    key: u64,
    shared: Option<Arc<SharedTimeline>>,
}

impl RequestGuard {
    /// Where the steps of the request are noted.
    pub(crate) fn timeline(&self) -> Timeline {
        Timeline { shared: self.shared.clone(), ..Timeline::default() }
    }

    /// Notes what the body asks for.
    pub(crate) fn asks(&self, requested: &str, streamed: bool) {
        if let Some(shared) = &self.shared {
            shared.lock().head.asks(requested, streamed);
        }
    }

    /// Notes how the request was answered.
    pub(crate) fn answered<T>(&self, result: &Result<T, Refusal>) {
        let Some(shared) = &self.shared else { return };
        let head = &mut shared.lock().head;
        match result {
            Ok(_) => head.status = Some(200),
            Err(refusal) => (head.status, head.error) = (Some(refusal.status), Some(refusal.kind)),
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            self.recorder.finish(self.key, shared);
        }
    }
}
