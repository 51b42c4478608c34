//! Hands a page to the tokenizer, each tag with a limited number of attributes. The tokenizer compares
//! every attribute of a tag with every other one, so a tag of one megabyte would take minutes.
//!
//! Where a tag begins depends on the markup before it: a comment and a script contain none. The page is
//! therefore handed over piece by piece, and the renderer says what the tokenizer made of a piece.

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, TokenSinkResult, Tokenizer, TokenizerOpts};

use super::render::{Renderer, content};
use super::skip::ATTRIBUTES_READ;
use super::tag::{self, Tag};
use crate::page::Page;

/// The largest number of attributes of a tag that stays as it is. A larger one keeps the attributes that
/// are read.
const ATTRIBUTES_MAX: usize = 100;
/// How much is tokenized before the next check whether there is enough text.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) struct Feeder<'a> {
    html: &'a str,
    /// How much of the page the tokenizer has.
    fed: usize,
    tokenizer: Tokenizer<Renderer>,
    input: BufferQueue,
}

impl<'a> Feeder<'a> {
    pub(super) fn new(html: &'a str, sink: Renderer) -> Self {
        let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
        Self { html, fed: 0, tokenizer, input: BufferQueue::default() }
    }

    pub(super) fn into_page(mut self) -> Page {
        let mut at = 0;
        while let Some(start) = self.find('<', at).filter(|_| !self.sink().is_full()) {
            at = self.markup(start);
        }
        self.feed_to(self.html.len());
        if !self.sink().is_full() {
            self.tokenizer.end();
        }
        self.tokenizer.sink.into_page()
    }

    fn sink(&self) -> &Renderer {
        &self.tokenizer.sink
    }

    fn find(&self, wanted: char, from: usize) -> Option<usize> {
        self.html.get(from..)?.find(wanted).map(|offset| from + offset)
    }

    /// Handles what begins at `start`, outside of comments and raw text. Returns where to go on.
    fn markup(&mut self, start: usize) -> usize {
        match self.html.as_bytes().get(start + 1..).unwrap_or_default() {
            [b'/', b'>', ..] => start + "</>".len(),
            [b'/', first, ..] | [first, ..] if first.is_ascii_alphabetic() => self.tag(start),
            [b'!' | b'?' | b'/', ..] => self.declaration(start),
            _ => start + 1,
        }
    }

    fn tag(&mut self, start: usize) -> usize {
        let Some(tag) = Tag::scan(self.html, start) else {
            // The tokenizer drops a tag without an end, too.
            self.feed_to(start);
            self.fed = self.html.len();
            return self.fed;
        };
        if tag.attribute_count > ATTRIBUTES_MAX {
            self.feed_to(start);
            self.feed(&tag.with_only(&ATTRIBUTES_READ));
            self.fed = tag.end;
        }
        let name = tag.name.to_ascii_lowercase();
        if !matches!(content(&name), TokenSinkResult::RawData(_)) {
            return tag.end;
        }
        self.feed_to(tag.end);
        if self.sink().reads_raw_text() { self.raw_text(&name, tag.end) } else { tag.end }
    }

    /// Handles the raw text from `at` on, which ends with the end tag of the element `name`.
    fn raw_text(&mut self, name: &str, mut at: usize) -> usize {
        let head = format!("</{name}");
        while let Some(start) = self.find('<', at) {
            at = start + 1;
            if !tag::is_at(self.html, start, &head) {
                continue;
            }
            self.feed_to(start);
            self.feed(&head);
            self.feed(">");
            if !self.sink().reads_raw_text() {
                self.fed = Tag::scan(self.html, start).map_or(self.html.len(), |tag| tag.end);
                return self.fed;
            }
            // It ended a script inside a comment of the script.
            at = start + head.len();
            self.fed = at;
        }
        self.html.len()
    }

    /// Handles a comment, a document type, or what the tokenizer takes for a comment.
    fn declaration(&mut self, start: usize) -> usize {
        let before = self.sink().declarations();
        let mut at = start;
        while let Some(end) = self.find('>', at) {
            at = end + 1;
            self.feed_to(at);
            if self.sink().declarations() > before {
                return at;
            }
        }
        self.html.len()
    }

    fn feed_to(&mut self, end: usize) {
        let Some(mut rest) = self.html.get(self.fed..end) else { return };
        self.fed = end;
        while !rest.is_empty() && !self.sink().is_full() {
            let (chunk, next) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES));
            rest = next;
            self.feed(chunk);
        }
    }

    fn feed(&self, text: &str) {
        self.input.push_back(StrTendril::from_slice(text));
        // Scripts are not executed, so the tokenizer never waits for one.
        let _done = self.tokenizer.feed(&self.input);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use url::Url;

    use super::super::skip::Noise;
    use super::*;

    fn renderer() -> Renderer {
        Renderer::new(&Url::parse("https://site.test/").unwrap(), 100_000, Noise::Keep)
    }

    /// What the tokenizer makes of the page without help.
    fn fed_at_once(html: &str) -> Page {
        let tokenizer = Tokenizer::new(renderer(), TokenizerOpts::default());
        let input = BufferQueue::default();
        input.push_back(StrTendril::from_slice(html));
        let _done = tokenizer.feed(&input);
        tokenizer.end();
        tokenizer.sink.into_page()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_pieces_read_as_the_whole_page_does(
            parts in proptest::collection::vec(
                prop::sample::select(vec![
                    "<", ">", "/", "</", "=", " ", "'", "\"", "-", "--", "!", "<!", "<!--", "-->", "<?", "</>", "é",
                    "\r", "\n", "\0", "&am", "p;", "word", "<div", "</div", "<DIV ", " hidden", " Hidden=''", " alt=i",
                    " href=x", "<a ", "</a>", "<img", "<p ", "<svg", "</svg>", "<title", "</title", "<script", "</script",
                    "<textarea", "</TextArea ", "<xmp>", "</xmp>", "<![CDATA[", "]]>", "<!doctype ", "<b>", MANY, MANY,
                ]),
                0..40,
            ),
        ) {
            let html = parts.concat();
            let (pieces, whole) = (Feeder::new(&html, renderer()).into_page(), fed_at_once(&html));
            prop_assert_eq!((pieces.title, pieces.text), (whole.title, whole.text));
        }
    }

    /// More attributes than a tag may have.
    const MANY: &str = concat!(
        " a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
        " 0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P"
    );
}
