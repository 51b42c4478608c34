//! The resource `decoder` of the contract, for every dialect: it hands each frame as text to the
//! dialect's own reader of answers and collects the events.

use std::cell::RefCell;

use crate::bindings::dialect::ResponseHead;
use crate::bindings::generation::{Event, Frame, GuestDecoder};
use crate::bindings::types::{ErrorKind, Failure};
use crate::json::{self, JsonError};

/// One answer while it is read.
pub trait ReadAnswer: 'static {
    /// The message of the failure for an answer that does not have the form of the dialect.
    const MALFORMED: &'static str;

    /// The answer before its first frame. `streamed` is false when the whole body is one frame.
    fn begin(streamed: bool) -> Self;

    /// The events that have not been given to the host yet.
    fn events(&mut self) -> &mut Events;

    /// Translates one frame: the name of its event, and its data without surrounding white space.
    ///
    /// # Errors
    ///
    /// When the frame does not have the form of the dialect.
    fn frame(&mut self, name: &str, data: &str) -> Result<(), Malformed>;

    /// Translates what was held back until the end of the connection. It is not called for an answer
    /// that has ended in a frame. An answer that was cut off must not get a `finish` event.
    ///
    /// # Errors
    ///
    /// When the end does not have the form of the dialect.
    fn connection_ended(&mut self) -> Result<(), Malformed> {
        Ok(())
    }

    /// Takes the frames that have been completed since the last call, and returns their events.
    fn feed(&mut self, frames: &[Frame]) -> Vec<Event> {
        for frame in frames {
            if self.events().ended {
                break;
            }
            // Checked once here: as text, the JSON is read without another check of each of its strings.
            let text = json::utf8(frame.data.trim_ascii()).map_err(Malformed::from);
            let read = text.and_then(|data| self.frame(&frame.name, data));
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

impl From<JsonError> for Malformed {
    fn from(_: JsonError) -> Self {
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

#[cfg(test)]
mod tests {
    use super::{Events, Malformed, ReadAnswer};
    use crate::bindings::generation::{Event, Frame};

    #[derive(Default)]
    struct Answer(Events);

    impl ReadAnswer for Answer {
        const MALFORMED: &'static str = "malformed";

        fn begin(_streamed: bool) -> Self {
            Self::default()
        }

        fn events(&mut self) -> &mut Events {
            &mut self.0
        }

        fn frame(&mut self, name: &str, data: &str) -> Result<(), Malformed> {
            self.0.push(Event::RefusalDelta(format!("{name}={data}")));
            Ok(())
        }
    }

    #[test]
    fn frames_are_read_as_text_up_to_one_that_is_not_utf8() {
        let frame = |data: &[u8]| Frame { name: "n".to_owned(), data: data.to_vec() };
        let mut answer = Answer::begin(true);
        let events = answer.feed(&[frame(b" ab\n"), frame(b"\"\xff\""), frame(b"c")]);
        let [Event::RefusalDelta(first), Event::Error(last)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((first.as_str(), last.message.as_str()), ("n=ab", "malformed"));
        assert!(answer.feed(&[frame(b"d")]).is_empty() && answer.finish().is_empty());
    }
}
