//! Following one running request: each step is told when it begins and when it ends.

use super::RecordedStep;
use super::journal::STEPS_MAX;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Room for the beginning and the end of each step of a request, so that none is lost.
const FOLLOWED_MAX: usize = 2 * STEPS_MAX as usize;

/// Gets the steps of one request. Goes with the request in
/// [`RespondOptions::follow`](crate::RespondOptions::follow).
#[derive(Clone, Debug)]
pub struct StepSender(Sender<RecordedStep>);

/// Hands out the steps of one request.
#[derive(Debug)]
pub struct StepReceiver(Receiver<RecordedStep>);

/// A channel for the steps of one request. A request that is not followed has no cost from this.
#[must_use]
pub fn follow_steps() -> (StepSender, StepReceiver) {
    let (sender, receiver) = channel(FOLLOWED_MAX);
    (StepSender(sender), StepReceiver(receiver))
}

impl StepSender {
    pub(super) fn send(&self, step: RecordedStep) {
        // Only a receiver that is gone takes no step.
        self.0.try_send(step).unwrap_or_default();
    }
}

impl StepReceiver {
    /// The next step as it was when it began, then as it was when it ended. `None` after the end of
    /// the request.
    pub async fn next(&mut self) -> Option<RecordedStep> {
        self.0.recv().await
    }
}
