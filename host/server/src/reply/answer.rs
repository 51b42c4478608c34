//! The body of a response. Polling a streamed body polls the engine's stream directly, without a
//! task in between: a client that reads slowly slows the provider down, and a client that
//! disconnects drops the engine's work and the request upstream at once. The record of the request
//! travels with the body and is written when the body is done.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_engine::EventStream;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

use super::record::RequestRecord;
use crate::peer::RunningRequest;
use crate::telemetry::within;

/// The most bytes that are handed to a connection at once. Hyper drops a body when it has its last
/// piece, and HTTP/2 keeps a whole piece for the first byte that the client takes. So the pieces are
/// small: the record of a request lives until nearly all of a long answer has been taken.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// The content, and what ends with the request.
#[derive(Default)]
pub(crate) struct ResponseBody {
    content: Content,
    /// The rest of a chunk of the content that is handed over in pieces.
    rest: Bytes,
    /// The log record of a client's request.
    record: Option<Box<RequestRecord>>,
    /// For a request to the admin listener, which has no record.
    running: Option<RunningRequest>,
}

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Whole(Bytes),
    Stream(Box<EventStream>),
    Channel(Receiver<Bytes>),
}

impl ResponseBody {
    #[must_use]
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { content: Content::Whole(bytes), ..Self::default() }
    }

    /// A body that the engine produces while it is sent.
    #[must_use]
    pub(crate) fn stream(stream: EventStream) -> Self {
        Self { content: Content::Stream(Box::new(stream)), ..Self::default() }
    }

    /// A body whose chunks another task sends.
    #[must_use]
    pub(crate) fn channel(chunks: Receiver<Bytes>) -> Self {
        Self { content: Content::Channel(chunks), ..Self::default() }
    }

    /// Attaches the record of the request, which is written when this body is dropped.
    pub(crate) fn attach(&mut self, record: Box<RequestRecord>) {
        self.record = Some(record);
    }

    /// Counts the request as running until this body is dropped.
    pub(crate) fn keep_running(&mut self, running: RunningRequest) {
        self.running = Some(running);
    }

    #[must_use]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    /// The bytes, unless the body is a stream.
    #[must_use]
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Whole(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = self.next_piece(context);
        #[cfg(debug_assertions)]
        if let Poll::Ready(Some(bytes)) = &next {
            cofferdam_store::canaries::search("an answer", bytes);
        }
        next
    }

    /// The next chunk of an answer without a record.
    fn next_unrecorded(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.running.iter().for_each(RunningRequest::asked);
        let next = self.next(context);
        if let Poll::Ready(Some(_)) = &next {
            self.running.iter().for_each(RunningRequest::sent);
        }
        next
    }

    fn next_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.rest.is_empty() {
            match self.take_next(context) {
                Poll::Ready(Some(chunk)) if chunk.len() > PIECE_BYTES_MAX => self.rest = chunk,
                next => return next,
            }
        }
        Poll::Ready(Some(self.rest.split_to(PIECE_BYTES_MAX.min(self.rest.len()))))
    }

    fn take_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match std::mem::take(&mut self.content) {
            Content::Empty => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(bytes)),
            Content::Channel(mut chunks) => {
                let next = chunks.poll_recv(context);
                if !matches!(next, Poll::Ready(None)) {
                    self.content = Content::Channel(chunks);
                }
                next
            }
            Content::Stream(mut stream) => {
                let next = stream.poll_next(context);
                if !matches!(next, Poll::Ready(None)) {
                    self.content = Content::Stream(stream);
                }
                next
            }
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(mut record) = self.record.take() else {
            return self.next_unrecorded(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))));
        };
        record.asked();
        let next = within(record.id(), || self.next(context));
        if let Poll::Ready(chunk) = &next {
            record.sent(chunk.as_ref().map(Bytes::len));
        }
        self.record = Some(record);
        next.map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => self.rest.is_empty(),
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream(_) | Content::Channel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(self.rest.len() as u64),
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(_) | Content::Channel(_) => SizeHint::default(),
        }
    }
}
