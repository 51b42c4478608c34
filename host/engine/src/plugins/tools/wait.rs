//! Waits for running calls, and shows the progress of their questions to models meanwhile.

use super::Interrupted;
use super::run::FinishedCall;
use crate::assembler::Assembler;
use crate::assembler::question_progress::QuestionProgress;
use crate::lifecycle::deadline::{ClientGone, Deadline, Late};
use futures_util::{Stream, StreamExt};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// The result of the next call in their order, once it is over; `None` when all are.
///
/// # Errors
/// [`Interrupted`].
pub(super) async fn next_done(
    work: &mut (impl Stream<Item = FinishedCall> + Unpin),
    reports: &mut Receiver<(usize, QuestionProgress)>,
    assembler: &mut Assembler,
    deadline: &mut Deadline,
    time: Duration,
) -> Result<Option<FinishedCall>, Interrupted> {
    loop {
        let step = deadline
            .during(pin!(next_step(work, reports)), time)
            .await
            .map_err(|_: Late| Interrupted::Late)?;
        let done = match step {
            ToolStep::Progress(item, progress) => {
                assembler.show_progress(item, &progress).map_err(Interrupted::Malformed)?;
                deadline.send(assembler.take_events()).await.map_err(|ClientGone| Interrupted::Gone)?;
                continue;
            }
            ToolStep::Done(done) => done,
        };
        // Progress that a call sent before it ended is shown before its end.
        while let Ok((item, progress)) = reports.try_recv() {
            assembler.show_progress(item, &progress).map_err(Interrupted::Malformed)?;
        }
        return Ok(done);
    }
}

/// What happens next while calls run.
enum ToolStep {
    /// Progress of a question of the call whose item has this index in the output.
    Progress(usize, QuestionProgress),
    /// The next call in their order is over; `None` when all are.
    Done(Option<FinishedCall>),
}

async fn next_step(
    work: &mut (impl Stream<Item = FinishedCall> + Unpin),
    reports: &mut Receiver<(usize, QuestionProgress)>,
) -> ToolStep {
    tokio::select! {
        biased;
        Some((item, progress)) = reports.recv() => ToolStep::Progress(item, progress),
        done = work.next() => ToolStep::Done(done),
    }
}
