//! How the questions of a running call go on, for whoever shows it.

use tokio::sync::mpsc::Sender;

/// Something happened to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether it is one of several that were asked together.
    pub(crate) in_panel: bool,
    /// The model as it was asked for.
    pub(crate) model: String,
    pub(crate) note: Note,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// It was put.
    Asked,
    /// It was answered.
    Answered { text: String, reasoning: String },
    /// There is no answer; the message is for the client.
    Failed { message: String, status: u16 },
}

/// Tells of the questions of one call, whose item stands at a place of the output.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) item: usize,
    pub(crate) notes: Sender<(usize, Progress)>,
}

impl Reporter {
    /// Waits until there is room to tell it.
    pub(crate) async fn tell(&self, progress: Progress) {
        // Who does not listen any more needs no news.
        self.notes.send((self.item, progress)).await.unwrap_or_default();
    }
}
