//! The progress of the questions of a running tool call, for the events of the client's stream.

use tokio::sync::mpsc::Sender;

/// A question of a plugin and a step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuestionProgress {
    /// Whether it is one of several questions that were asked together.
    pub(crate) in_panel: bool,
    /// The model as the question named it.
    pub(crate) model: String,
    pub(crate) note: Note,
}

/// What happened to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The question was put.
    Asked,
    /// It was answered. `reasoning` is empty where the model gave none.
    Answered { text: String, reasoning: String },
    /// There is no answer. The message is meant for the client.
    Failed { message: String, status: u16 },
}

/// Reports the questions of one tool call. `item` is the index of the call's item in the output.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) item: usize,
    pub(crate) notes: Sender<(usize, QuestionProgress)>,
}

impl Reporter {
    /// Waits while the channel is full, so that a slow client slows the questions.
    pub(crate) async fn report(&self, progress: QuestionProgress) {
        // The receiver is gone when the client has left; then progress is of no use.
        self.notes.send((self.item, progress)).await.unwrap_or_default();
    }
}
