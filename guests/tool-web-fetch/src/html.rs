//! A web page as readable text in Markdown: title, headings, paragraphs, lists, tables, links and
//! code.
//!
//! It works on the tokens of the page and not on a tree: one pass, with time and memory proportional
//! to the page for every markup. With a tree, 100,000 nested elements would take quadratic time to
//! build and a deep stack to walk.

mod feeder;
mod render;
mod skip;
mod tag;

#[cfg(test)]
mod tests;

use url::Url;

use crate::page::Page;
use feeder::Feeder;
use render::Renderer;
use skip::Noise;

/// If less text than this remains, the page is read again with navigation and the like.
const TEXT_CHARS_MIN: usize = 200;

/// Reads at most `chars_max` characters of text. Relative links are resolved with `base`.
pub(crate) fn read(html: &str, base: &Url, chars_max: usize) -> Page {
    let render = |noise| Feeder::new(html, Renderer::new(base, chars_max, noise)).into_page();
    let page = render(Noise::Drop);
    if page.text.chars().take(TEXT_CHARS_MIN).count() >= TEXT_CHARS_MIN {
        return page;
    }
    let whole = render(Noise::Keep);
    if whole.text.len() > page.text.len() { whole } else { page }
}
