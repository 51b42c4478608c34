//! Keeps the last requests and those that run.

use super::finished::FinishedRequests;
use super::follow::StepSender;
use super::record::{RequestBeginning, TimelineRecord};
use super::{RecordedRequest, RecordedTimeline, SharedTimeline, Timeline};
use crate::refusal::Refusal;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The most finished requests that may be kept.
pub const RECORDED_MAX: usize = 4096;
/// The most characters of the model that a client asks for.
const REQUESTED_CHARS_MAX: usize = 128;
/// Finished requests that are copied while the lock is held once, so that requests that end do not
/// wait long for an operator who reads.
const PAGE: usize = 128;
/// The parts of the list of running requests. Threads use different ones, so that they rarely wait
/// for each other.
const RUNNING_PARTS: usize = 16;
/// The most timelines of requests that are over which each part has for further requests.
const SPARE_MAX: usize = 16;

/// The recorder of requests: the last finished ones, and those that run.
pub struct RequestRecorder {
    /// How many finished requests are kept. 0: nothing is recorded.
    keeps: AtomicUsize,
    finished: Mutex<FinishedRequests>,
    running: [Mutex<RunningRequests>; RUNNING_PARTS],
}

/// Some of the running requests. Two of these are never in one line of a processor's cache.
#[derive(Default)]
#[repr(align(128))]
struct RunningRequests {
    /// The requests that run. Each keeps its index while it runs.
    requests: Vec<Option<Arc<SharedTimeline>>>,
    /// The indexes of empty entries in `requests`.
    free: Vec<usize>,
    /// Requests that are over, whose memory the next ones use.
    spare: Vec<Arc<SharedTimeline>>,
}

impl RunningRequests {
    /// Begins a request. Returns its place.
    fn begin(
        &mut self,
        beginning: &RequestBeginning<'_>,
        follower: Option<StepSender>,
    ) -> (usize, Arc<SharedTimeline>) {
        // Something may still refer to the request that is over. Then the next one gets memory of its own.
        let spare = self.spare.pop().filter(|spare| Arc::strong_count(spare) == 1);
        let mut timeline = spare.unwrap_or_default();
        if let Some(timeline) = Arc::get_mut(&mut timeline) {
            timeline.begin(beginning, follower);
        }
        let place = self.free.pop().unwrap_or(self.requests.len());
        match self.requests.get_mut(place) {
            Some(request) => *request = Some(Arc::clone(&timeline)),
            None => self.requests.push(Some(Arc::clone(&timeline))),
        }
        (place, timeline)
    }

    /// Ends the request at this place.
    fn end(&mut self, place: usize) {
        let has_room = self.spare.len() < SPARE_MAX;
        let ended = self.requests.get_mut(place).and_then(Option::take);
        self.spare.extend(ended.filter(|_| has_room));
        self.free.push(place);
    }
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
}

/// The requests that ended after another one.
#[derive(Clone, Debug, Default)]
pub struct EndedRequests {
    /// The number of the last request that ended.
    pub last: u64,
    /// The newest ones, oldest first.
    pub requests: Vec<RecordedRequest>,
    /// How many more ended.
    pub left_out: u64,
}

impl Default for RequestRecorder {
    /// A recorder that keeps nothing until [`Self::keep`] is called.
    fn default() -> Self {
        Self { keeps: AtomicUsize::new(0), finished: Mutex::default(), running: Default::default() }
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
        let after = filter.after.unwrap_or_default();
        let kept = self.kept(filter.before.unwrap_or(u64::MAX)).take_while(|(number, _)| *number > after);
        let heads = kept.map(|(number, record)| RecordedRequest::finished(&record, Some(number)));
        heads.filter(|head| filter.takes(head)).take(filter.limit).collect()
    }

    /// The requests that run, in the order in which they began.
    pub fn running(&self) -> Vec<RecordedRequest> {
        let documents = self.running_now();
        documents.iter().filter_map(|it| it.document()).map(|document| document.request).collect()
    }

    /// One request with its steps, finished or running, by the id of its answer.
    pub fn one(&self, request_id: &str) -> Option<RecordedTimeline> {
        let mut finished = self.kept(u64::MAX);
        if let Some((number, record)) = finished.find(|(_, record)| record.is_of(request_id)) {
            return Some(RecordedTimeline::finished(&record, Some(number)));
        }
        let is_it =
            |it: &&Arc<SharedTimeline>| it.lock().record.as_ref().is_some_and(|it| it.is_of(request_id));
        self.running_now().iter().find(is_it)?.document()
    }

    /// The ids of the answers of all requests that are kept or run, by their ids in the log.
    pub fn ids_by_log_id(&self) -> BTreeMap<Uuid, String> {
        let finished = self.kept(u64::MAX).filter_map(|(_, record)| record.ids());
        let running = self.running_now();
        finished.chain(running.iter().filter_map(|it| it.lock().record.as_ref()?.ids())).collect()
    }

    /// The requests that ended after the one with this number, at most `most` of them.
    pub fn ended_since(&self, number: u64, most: usize) -> EndedRequests {
        let (last, records) = self.finished().after(number, most);
        let oldest_first = records.into_iter().rev();
        let requests: Vec<RecordedRequest> =
            oldest_first.map(|(number, record)| RecordedRequest::finished(&record, Some(number))).collect();
        let left_out = last.saturating_sub(number).saturating_sub(requests.len() as u64);
        EndedRequests { last, requests, left_out }
    }

    /// Begins to record a request, if requests are kept or someone wants its steps.
    pub(crate) fn begin<'a>(
        self: &Arc<Self>,
        begun: impl FnOnce() -> RequestBeginning<'a>,
        follower: Option<StepSender>,
        is_wanted: bool,
    ) -> RequestGuard {
        if self.keeps() == 0 && follower.is_none() && !is_wanted {
            return RequestGuard(None);
        }
        let (beginning, part) = (begun(), part_of_this_thread());
        let (place, timeline) = self.running_part(part).begin(&beginning, follower);
        RequestGuard(Some(GuardedRequest { recorder: Arc::clone(self), part, place, timeline }))
    }

    fn finish(&self, request: &GuardedRequest) {
        let ended = request.timeline.finish(|record| {
            let keeps = self.keeps();
            if keeps > 0 {
                self.finished().keep(record, keeps);
            }
        });
        self.running_part(request.part).end(request.place);
        if let Some((at_end, timeline)) = ended {
            at_end(timeline);
        }
    }

    /// Number and record of the finished requests before one, the last one first.
    fn kept(&self, before: u64) -> impl Iterator<Item = (u64, TimelineRecord)> {
        let mut before = before;
        let pages = std::iter::from_fn(move || {
            let page = self.finished().before(before, PAGE);
            before = page.last()?.0;
            Some(page)
        });
        pages.flatten()
    }

    fn finished(&self) -> MutexGuard<'_, FinishedRequests> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_part(&self, part: usize) -> MutexGuard<'_, RunningRequests> {
        let [first, rest @ ..] = &self.running;
        let part = part.checked_sub(1).and_then(|part| rest.get(part)).unwrap_or(first);
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_now(&self) -> Vec<Arc<SharedTimeline>> {
        let parts = (0..RUNNING_PARTS).map(|part| self.running_part(part));
        let mut running: Vec<Arc<SharedTimeline>> =
            parts.flat_map(|part| part.requests.iter().flatten().cloned().collect::<Vec<_>>()).collect();
        running.sort_by_key(|timeline| timeline.began);
        running
    }
}

/// The part of the list of running requests that the calling thread uses.
fn part_of_this_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % RUNNING_PARTS);
    }
    PART.get()
}

/// A request that is recorded, if it is. When this is dropped, the request is over.
pub(crate) struct RequestGuard(Option<GuardedRequest>);

struct GuardedRequest {
    recorder: Arc<RequestRecorder>,
    part: usize,
    place: usize,
    timeline: Arc<SharedTimeline>,
}

impl RequestGuard {
    /// Where the steps of the request are noted.
    pub(crate) fn timeline(&self) -> Timeline {
        let shared = self.0.as_ref().map(|request| Arc::clone(&request.timeline));
        Timeline { shared, ..Timeline::default() }
    }

    /// Notes what the body asks for.
    pub(crate) fn asks(&self, requested: &str, streamed: bool) {
        let cut = requested.char_indices().nth(REQUESTED_CHARS_MAX).map_or(requested.len(), |(end, _)| end);
        let model = requested.get(..cut).unwrap_or_default();
        self.note(|record| record.asked(model, streamed));
    }

    /// Notes how the request was answered.
    pub(crate) fn answered<T>(&self, result: &Result<T, Refusal>) {
        match result {
            Ok(_) => self.note(|record| record.head.status = Some(200)),
            Err(refusal) => self.refused(refusal),
        }
    }

    /// Notes why the request was refused.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.note(|record| {
            record.head.status = Some(refusal.status);
            record.head.error = Some(refusal.kind.as_str());
        });
    }

    fn note(&self, note: impl FnOnce(&mut TimelineRecord)) {
        if let Some(request) = &self.0 {
            request.timeline.note(note);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            request.recorder.finish(&request);
        }
    }
}
