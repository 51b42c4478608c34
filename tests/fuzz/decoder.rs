//! The fuzz target of a provider's decoder, a module of each provider's crate: for `--cfg fuzzing` and the test below.

use cofferdam_guest_kit::ReadAnswer;
use cofferdam_guest_kit::bindings::generation::{Event, Frame};

use crate::answer::Answer;

/// Reads an answer frame by frame and in calls of several frames: the events are the same, and none follows the last one.
/// The first byte says whether the answer is streamed and how many frames a call has. Each line is a frame: the name of
/// its event, a tab, and its data.
pub fn decode(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let (streamed, at_once) = (choice % 2 == 0, usize::from(choice / 2 % 8) + 1);
    let frames: Vec<Frame> = data.split(|byte| *byte == b'\n').map(frame).collect();
    let single = events(streamed, &frames, 1);
    assert_eq!(events(streamed, &frames, at_once), single);
    let last = single.iter().position(|event| event.starts_with("Finish") || event.starts_with("Error"));
    assert!(last.is_none_or(|last| last + 1 == single.len()), "{single:?}");
}

fn frame(line: &[u8]) -> Frame {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (name, data) = tab.map_or((&[][..], line), |tab| {
        (line.get(..tab).unwrap_or_default(), line.get(tab + 1..).unwrap_or_default())
    });
    Frame { name: String::from_utf8_lossy(name).into_owned(), data: data.to_vec() }
}

/// The events in words. They have no order of comparison, because they hold floating point numbers.
fn events(streamed: bool, frames: &[Frame], at_once: usize) -> Vec<String> {
    let mut answer = Answer::begin(streamed);
    let mut events: Vec<Event> = frames.chunks(at_once).flat_map(|frames| answer.feed(frames)).collect();
    events.extend(answer.finish());
    events.iter().map(|event| format!("{event:?}")).collect()
}

#[cfg(test)]
mod tests {
    include!("corpus.rs");

    #[test]
    fn the_corpus_of_the_fuzz_target_passes() {
        each_of(env!("CARGO_PKG_NAME"), super::decode);
    }
}
