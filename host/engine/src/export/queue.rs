//! Records that wait for one destination.

use super::record::ExportRecord;
use crate::memory::meters::ExportTally;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// The most records that wait. Further ones are dropped.
const RECORDS_MAX: usize = 1024;
/// The most memory of the records that wait or are sent, in bytes. Further ones are dropped.
const BYTES_MAX: usize = 16 << 20;

pub(super) enum Message {
    Record(QueuedRecord),
    /// Asks for an answer once all messages before it are sent or given up.
    Flush(oneshot::Sender<()>),
}

/// A record with its share of the memory of a queue.
pub(super) struct QueuedRecord {
    pub(super) record: Arc<ExportRecord>,
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for QueuedRecord {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The queue of one destination.
pub(super) struct ExportQueue {
    sender: Sender<Message>,
    pub(super) tally: Arc<ExportTally>,
    held: Arc<AtomicUsize>,
}

impl ExportQueue {
    pub(super) fn new(tally: Arc<ExportTally>) -> (Self, Receiver<Message>) {
        let (sender, messages) = channel(RECORDS_MAX);
        (Self { sender, tally, held: Arc::default() }, messages)
    }

    /// Adds a record, or drops and counts it where there is no room.
    pub(super) fn push(&self, record: &Arc<ExportRecord>) {
        let bytes = record.bytes();
        // Added first, so that several at once take no more than there is.
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let queued = QueuedRecord { record: Arc::clone(record), held: Arc::clone(&self.held), bytes };
        if before.saturating_add(bytes) > BYTES_MAX || self.sender.try_send(Message::Record(queued)).is_err()
        {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all records taken so far are sent or given up.
    pub(super) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        // A worker that has ended has nothing left to send.
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            is_done.await.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;
    use cofferdam_store::UsageOutcome;
    use serde_json::json;

    #[test]
    fn records_that_find_no_room_are_dropped_and_counted() {
        let (queue, mut messages) = ExportQueue::new(Arc::default());
        let small = Arc::new(record(None, UsageOutcome::Completed, None));
        for _ in 0..RECORDS_MAX + 2 {
            queue.push(&small);
        }
        assert_eq!(queue.tally.dropped.load(Ordering::Relaxed), 2);
        for _ in 0..RECORDS_MAX {
            assert!(matches!(messages.try_recv(), Ok(Message::Record(_))));
        }
        assert!(messages.try_recv().is_err());
        assert_eq!(queue.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_records_of_a_queue_have_a_bound_in_bytes() {
        let (queue, mut messages) = ExportQueue::new(Arc::default());
        let trace = json!({ "note": "a".repeat(64 << 10) });
        let large = Arc::new(record(Some(trace), UsageOutcome::Completed, None));
        for _ in 0..300 {
            queue.push(&large);
        }
        let kept = 300 - queue.tally.dropped.load(Ordering::Relaxed);
        assert!((200..=256).contains(&kept), "{kept}");
        drop(messages.try_recv());
        queue.push(&large);
        assert_eq!(300 - queue.tally.dropped.load(Ordering::Relaxed), kept, "one left and one came");
    }
}
