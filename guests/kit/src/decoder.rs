//! The resource `decoder` of the contract around a dialect's own reader of answers.

use std::cell::RefCell;

use crate::bindings::dialect::ResponseHead;
use crate::bindings::generation::{Event, Frame, GuestDecoder};
use crate::bindings::types::{ErrorKind, Failure};

/// One answer while it is read.
pub trait ReadAnswer: 'static {
    /// The message of the failure for an answer that does not have the form of the dialect.
    const MALFORMED: &'static str;

    /// The answer before its first frame. `streamed` is false when the whole body is one frame.
    fn begin(streamed: bool) -> Self;

    /// The events that have not been given to the host yet.
    fn events(&mut self) -> &mut Events;

    /// Translates one frame.
    ///
    /// # Errors
    ///
    /// When the frame does not have the form of the dialect.
    fn frame(&mut self, frame: &Frame) -> Result<(), Malformed>;

    /// Translates what was held back until the end of the connection. It is not called for an answer
    /// that has ended in a frame. An answer that was cut off must not get a `finish` event.
    ///
    /// # Errors
    ///
    /// When the end does not have the form of the dialect.
    fn connection_ended(&mut self) -> Result<(), Malformed> {
        Ok(())
    }

    /// Takes the frames of one network read.
    fn feed(&mut self, frames: &[Frame]) -> Vec<Event> {
        for frame in frames {
            if self.events().ended {
                break;
            }
            let read = self.frame(frame);
            self.fail_if_malformed(read);
        }
        std::mem::take(&mut self.events().waiting)
    }

    /// Takes the end of the connection.
    fn finish(&mut self) -> Vec<Event> {
        if !self.events().ended {
            let read = self.connection_ended();
            self.fail_if_malformed(read);
        }
        std::mem::take(&mut self.events().waiting)
    }

    /// Adds an event and does not return a failure, so that the events before it are not lost.
    fn fail_if_malformed(&mut self, read: Result<(), Malformed>) {
        if read.is_err() {
            self.events().fail(Failure::new(ErrorKind::ProviderUnavailable, Self::MALFORMED));
        }
    }
}

/// The error for an answer that cannot be translated.
#[derive(Debug)]
pub struct Malformed;

impl From<serde_json::Error> for Malformed {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// The events of one answer.
#[derive(Debug, Default)]
pub struct Events {
    waiting: Vec<Event>,
    /// Whether the answer has ended. Later frames are ignored.
    ended: bool,
}

impl Events {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.waiting.push(event);
    }

    /// Adds the last event of the answer.
    pub fn end(&mut self, event: Event) {
        self.waiting.push(event);
        self.ended = true;
    }

    /// Ends the answer with an error.
    pub fn fail(&mut self, failure: Failure) {
        self.end(Event::Error(failure));
    }
}

impl Extend<Event> for Events {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        self.waiting.extend(events);
    }
}

/// The resource of the contract.
#[derive(Debug)]
pub struct Decoder<A>(RefCell<A>);

impl<A: ReadAnswer> GuestDecoder for Decoder<A> {
    fn new(head: ResponseHead) -> Self {
        Self(RefCell::new(A::begin(head.streamed)))
    }

    fn feed(&self, frames: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Ok(self.0.borrow_mut().feed(&frames))
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(self.0.borrow_mut().finish())
    }
}
