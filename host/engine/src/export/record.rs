//! The content of one record.

use super::Broadcaster;
use super::TraceParent;
use crate::timeline::{RecordedTimeline, Timeline};
use bytes::Bytes;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{Clock, InternId, UsageOutcome, UsageRow};

/// What the request said about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// When it was accepted, in Unix milliseconds.
    pub(crate) started_ms: u64,
    /// The model as the client wrote it.
    pub(crate) requested: String,
    /// The intern whose key was used.
    pub(crate) intern: Option<InternId>,
    /// `session_id`, of the body or else of the header.
    pub(crate) session_id: Option<String>,
    /// The field `user` of the request.
    pub(crate) user: Option<String>,
    /// The field `trace` of the request, a JSON object of at most 16 KiB.
    pub(crate) trace: Option<Bytes>,
    /// The trace of the client, from its header.
    pub(crate) trace_parent: Option<TraceParent>,
}

/// A finished request.
#[derive(Debug)]
pub(super) struct ExportRecord {
    pub(super) about: About,
    /// Unix milliseconds.
    pub(super) ended_ms: u64,
    pub(super) row: UsageRow,
    /// Why it failed, where that is known.
    pub(super) error: Option<ErrorKind>,
    /// The steps of the request, where a destination gets them.
    pub(super) timeline: Option<RecordedTimeline>,
}

/// The record of a request that still runs.
pub struct PendingExport {
    broadcaster: Broadcaster,
    clock: Clock,
    about: About,
    error: Option<ErrorKind>,
}

impl PendingExport {
    pub(super) fn new(broadcaster: Broadcaster, clock: Clock, about: About) -> Self {
        Self { broadcaster, clock, about, error: None }
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&mut self, error: ErrorKind) {
        self.error = Some(error);
    }

    /// Completes the record with the usage row and the outcome, and puts it into the queues. Where
    /// a destination gets the steps of requests, this is done when the request is over.
    pub(crate) fn send(self, row: &UsageRow, outcome: UsageOutcome, timeline: &Timeline) {
        let Self { broadcaster, clock, about, error } = self;
        let ended_ms = clock.now_ms().max(about.started_ms);
        let error = error.filter(|_| outcome == UsageOutcome::Failed);
        let row = UsageRow { outcome, ..row.clone() };
        let record = ExportRecord { about, ended_ms, row, error, timeline: None };
        if !broadcaster.wants_steps() {
            return broadcaster.send(record);
        }
        timeline.at_end(Box::new(move |timeline| {
            broadcaster.send(ExportRecord { timeline: Some(timeline), ..record });
        }));
    }
}

impl ExportRecord {
    /// About how much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        let About { requested, session_id, user, trace, .. } = &self.about;
        let texts = [session_id, user].map(|text| text.as_ref().map_or(0, String::len));
        let steps = self.timeline.as_ref().map_or(0, RecordedTimeline::bytes);
        let trace = trace.as_ref().map_or(0, Bytes::len);
        size_of::<Self>() + requested.len() + texts.iter().sum::<usize>() + trace + steps
    }

    pub(super) fn outcome(&self) -> &'static str {
        self.row.outcome.as_str()
    }
}
