//! The body of an answer. Polling a streamed body polls the engine's stream: no
//! task stands between, so a client that reads slowly slows the provider down,
//! and a client that goes away drops engine and upstream at once. The record of
//! the request travels with the body and is written when the body is done.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_engine::EventStream;
use http_body::{Frame, SizeHint};

use crate::record::Record;
use crate::telemetry::within;

/// What is sent, and the record of what came of it.
#[derive(Default)]
pub(crate) struct Body {
    content: Content,
    record: Option<Box<Record>>,
}

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Whole(Bytes),
    Stream(Box<EventStream>),
}

impl Body {
    /// A body that is known.
    #[must_use]
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { content: Content::Whole(bytes), record: None }
    }

    /// A body that the engine makes while it is read.
    #[must_use]
    pub(crate) fn stream(stream: EventStream) -> Self {
        Self { content: Content::Stream(Box::new(stream)), record: None }
    }

    /// Gives the record of the request to its answer.
    pub(crate) fn attach(&mut self, record: Box<Record>) {
        self.record = Some(record);
    }

    /// True when the engine makes the body while it is read.
    #[must_use]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    /// The bytes of a body that is known.
    #[must_use]
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Whole(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match std::mem::take(&mut self.content) {
            Content::Empty => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(bytes)),
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

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(mut record) = self.record.take() else {
            return self.next(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))));
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
            Content::Empty => true,
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
