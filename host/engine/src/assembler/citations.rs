//! Places citations from tools in the text. A tool cannot know what the model will write, so
//! positions are computed here: a source that a text mentions is cited at that place, and the
//! remaining sources at the end of the last text.
//!
//! Positions count Unicode scalar values, because clients of OpenAI's Python library slice texts
//! with them.

use super::items::ContentPart;
use super::{Assembler, PARTS_MAX};
use serde_json::{Map, Value};
use std::ops::Range;

/// How much of a text is searched for sources, in bytes. The work is the number of sources times
/// this length.
const SEARCHED_BYTES_MAX: usize = 256 << 10;
/// The longest label of a Markdown link, in bytes.
const LABEL_BYTES_MAX: usize = 512;

/// A JSON object from a tool: an annotation that no text has received yet.
pub(super) type WaitingCitation = Map<String, Value>;

impl Assembler {
    /// Adds these JSON objects to the annotations of a following text. `url_citation`s are placed
    /// where a text mentions their `url`. Annotations are dropped if they are not objects, exceed
    /// the limits, or cite a URL that is already waiting.
    pub fn annotate_next(&mut self, annotations: Vec<Vec<u8>>) {
        for annotation in annotations {
            let Ok(waiting) = serde_json::from_slice::<WaitingCitation>(&annotation) else { continue };
            let known = cited(&waiting).is_some_and(|url| {
                self.next_annotations.iter().any(|other| cited(other).is_some_and(|known| known == url))
            });
            // An annotation that does not fit is dropped and not counted.
            let fits = self.output_bytes + annotation.len() <= self.output_max;
            if !known && self.next_annotations.len() < PARTS_MAX as usize && fits {
                self.output_bytes += annotation.len();
                self.next_annotations.push(waiting);
            }
        }
    }

    /// Writes the annotations of a text that is about to be closed.
    pub(super) fn annotate_text(&mut self, index: usize, part: usize) {
        if self.next_annotations.is_empty() {
            return;
        }
        let Some(ContentPart::Text { text, .. }) =
            self.items.get(index).and_then(|item| item.parts().get(part))
        else {
            return;
        };
        let is_last = self.is_ending;
        let end = text.chars().count();
        let mut ready = Vec::new();
        let mut waiting = Vec::new();
        for mut annotation in std::mem::take(&mut self.next_annotations) {
            let place = match cited(&annotation) {
                Some(url) => place(text, url).or_else(|| is_last.then_some(end..end)),
                // Other annotations have no position and go to the first text that ends.
                None => Some(0..0),
            };
            let Some(place) = place else {
                waiting.push(annotation);
                continue;
            };
            if cited(&annotation).is_some() {
                annotation.insert("start_index".to_owned(), place.start.into());
                annotation.insert("end_index".to_owned(), place.end.into());
            }
            ready.push(annotation);
        }
        self.next_annotations = waiting;
        for annotation in ready {
            // Serialization of an object cannot fail.
            self.write_annotation(index, part, Value::Object(annotation).to_string().into_bytes());
        }
    }
}

/// The URL of a citation.
fn cited(annotation: &WaitingCitation) -> Option<&str> {
    let is_citation = annotation.get("type").and_then(Value::as_str) == Some("url_citation");
    annotation.get("url").and_then(Value::as_str).filter(|url| is_citation && !url.is_empty())
}

/// Where a text mentions a URL first, as a range of characters. The range covers the whole Markdown
/// link if the URL is in one.
fn place(text: &str, url: &str) -> Option<Range<usize>> {
    let text = text.get(..text.floor_char_boundary(SEARCHED_BYTES_MAX)).unwrap_or_default();
    // Texts often have the address of a host without the final slash.
    let shorter = url.strip_suffix('/').filter(|host| host.matches('/').count() == 2);
    let bytes = named(text, url).or_else(|| named(text, shorter?))?;
    let range = link_around(text, &bytes).unwrap_or(bytes);
    let start = text.get(..range.start)?.chars().count();
    Some(start..start + text.get(range)?.chars().count())
}

/// The byte range of the first mention of a URL that is not just the beginning of a longer URL.
fn named(text: &str, url: &str) -> Option<Range<usize>> {
    let mut places = text.match_indices(url).map(|(start, found)| start..start + found.len());
    places.find(|range| is_end(text.get(range.end..).unwrap_or_default()))
}

fn is_end(rest: &str) -> bool {
    let mut letters = rest.chars();
    let stops = |letter: Option<char>| {
        letter.is_none_or(|letter| letter.is_whitespace() || ")]}>\"'`*|<".contains(letter))
    };
    match letters.next() {
        Some('.' | ',' | ';' | ':' | '!' | '?') => stops(letters.next()),
        letter => stops(letter),
    }
}

/// The byte range of `[label](url)` around a URL.
fn link_around(text: &str, url: &Range<usize>) -> Option<Range<usize>> {
    let before = text.get(..url.start)?.strip_suffix("](")?;
    text.get(url.end..)?.strip_prefix(')')?;
    let mut open = 1u32;
    for (back, byte) in before.bytes().rev().take(LABEL_BYTES_MAX).enumerate() {
        match byte {
            b']' => open += 1,
            b'[' if open == 1 => return Some(before.len() - back - 1..url.end + 1),
            b'[' => open -= 1,
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sources_are_found_where_the_text_names_them() {
        let long = format!("{} https://a.test/x", "é".repeat(SEARCHED_BYTES_MAX));
        for (text, url, expected) in [
            ("See https://a.test/x.", "https://a.test/x", Some(4..20)),
            ("Müß [the page](https://a.test/x) says", "https://a.test/x", Some(4..32)),
            ("([a [b] c](https://a.test/x))", "https://a.test/x", Some(1..28)),
            ("no label](https://a.test/x)", "https://a.test/x", Some(10..26)),
            ("https://a.test/xy https://a.test/x", "https://a.test/x", Some(18..34)),
            ("https://a.test/x.html", "https://a.test/x", None),
            ("https://a.test is it", "https://a.test/", Some(0..14)),
            ("https://a.test/x", "https://a.test/x/", None),
            ("Nothing.", "https://a.test/x", None),
            (long.as_str(), "https://a.test/x", None),
        ] {
            assert_eq!(place(text, url), expected, "{}", text.get(..40).unwrap_or(text));
        }
    }

    proptest! {
        /// Every place is inside the text and contains the source.
        #[test]
        fn places_are_inside_the_text(text in "[\\[\\]()aé \nh.]{0,20}(\\]\\()?(https://a\\.b/c)?[\\)\\. aé]{0,5}") {
            if let Some(range) = place(&text, "https://a.b/c") {
                let cut: String = text.chars().skip(range.start).take(range.len()).collect();
                prop_assert!(cut.contains("https://a.b/c") && cut.chars().count() == range.len());
            }
        }
    }
}
