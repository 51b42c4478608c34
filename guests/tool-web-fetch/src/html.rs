//! A web page as readable text in Markdown: title, headings, paragraphs, lists, tables, links and
//! code.
//!
//! It works on the tokens of the page and not on a tree: one pass, with time and memory proportional
//! to the page for every markup. With a tree, 100,000 nested elements would take quadratic time to
//! build and a deep stack to walk.

mod guard;
mod render;
mod skip;

#[cfg(test)]
mod tests;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};
use url::Url;

use crate::page::Page;
use render::Renderer;
use skip::Noise;

/// How much is tokenized before the next check whether there is enough text.
const CHUNK_BYTES: usize = 64 * 1024;
/// If less text than this remains, the page is read again with navigation and the like.
const TEXT_CHARS_MIN: usize = 200;

/// Reads at most `chars_max` characters of text. Relative links are resolved with `base`.
pub(crate) fn read(html: &str, base: &Url, chars_max: usize) -> Page {
    let html = guard::without_monsters(html);
    let page = render(&html, base, chars_max, Noise::Drop);
    if page.text.chars().take(TEXT_CHARS_MIN).count() >= TEXT_CHARS_MIN {
        return page;
    }
    let whole = render(&html, base, chars_max, Noise::Keep);
    if whole.text.len() > page.text.len() { whole } else { page }
}

fn render(html: &str, base: &Url, chars_max: usize, noise: Noise) -> Page {
    let tokenizer = Tokenizer::new(Renderer::new(base, chars_max, noise), TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut rest = html;
    while !rest.is_empty() && !tokenizer.sink.is_full() {
        let (chunk, next) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES.min(rest.len())));
        rest = next;
        input.push_back(StrTendril::from_slice(chunk));
        // Scripts are not executed, so the tokenizer never waits for one.
        let _done = tokenizer.feed(&input);
    }
    if !tokenizer.sink.is_full() {
        tokenizer.end();
    }
    tokenizer.sink.into_page()
}
