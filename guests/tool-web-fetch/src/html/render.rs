//! Renders the tokens of a page as text, one after the other.

use std::cell::RefCell;

use cofferdam_text::Writer;
use html5ever::tokenizer::states::RawKind::{Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult};
use url::Url;

use super::skip::{Around, Noise, Skip, Verdict, attribute, is_void};
use crate::page::Page;

/// The longest title, in characters.
const TITLE_CHARS_MAX: usize = 300;
/// The longest link target that is shown or resolved, in bytes.
const LINK_BYTES_MAX: usize = 1_000;
/// The deepest nesting of lists with numbers of their own. Deeper lists continue the last one.
const LISTS_MAX: usize = 32;

/// The sink of the tokenizer, which calls it through a shared reference.
pub(crate) struct Renderer(RefCell<State>);

struct State {
    writer: Writer,
    noise: Noise,
    base: Url,
    title: Option<String>,
    in_title: bool,
    skip: Option<Skip>,
    around: Around,
    /// The number of open `svg` and `math` elements.
    foreign: u32,
    /// The number of open `pre` elements.
    preformatted: u32,
    /// Whether the next text follows `<pre>` directly. A line break there does not count.
    pre_begins: bool,
    /// The open lists: the number of the next item, or `None` for bullets.
    lists: Vec<Option<u32>>,
    link: Option<Link>,
    /// The number of cells in the current row.
    cells: u32,
    /// Whether the tokenizer reads text that contains no markup.
    reads_raw_text: bool,
    /// The number of comments and document types so far.
    declarations: u32,
}

struct Link {
    target: String,
    /// Whether the opening bracket was written. A link without text is not written at all.
    written: bool,
}

impl Renderer {
    pub(crate) fn new(base: &Url, chars_max: usize, noise: Noise) -> Self {
        Self(RefCell::new(State {
            writer: Writer::new(chars_max),
            noise,
            base: base.clone(),
            title: None,
            in_title: false,
            skip: None,
            around: Around::default(),
            foreign: 0,
            preformatted: 0,
            pre_begins: false,
            lists: Vec::new(),
            link: None,
            cells: 0,
            reads_raw_text: false,
            declarations: 0,
        }))
    }

    /// Whether the limit of characters is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().writer.is_full()
    }

    /// Whether what follows is raw text, up to the end tag of its element.
    pub(crate) fn reads_raw_text(&self) -> bool {
        self.0.borrow().reads_raw_text
    }

    /// The number of comments and document types that have ended.
    pub(crate) fn declarations(&self) -> u32 {
        self.0.borrow().declarations
    }

    pub(crate) fn into_page(self) -> Page {
        let mut state = self.0.into_inner();
        state.close_link();
        if state.preformatted > 0 {
            state.fence();
        }
        let cut = state.writer.is_full();
        let title = state.title.map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "));
        Page { title: title.filter(|title| !title.is_empty()), text: state.writer.into_text(), cut }
    }
}

impl TokenSink for Renderer {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut state = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => state.characters(&text),
            Token::TagToken(tag) => {
                let content = state.tag(&tag);
                state.reads_raw_text = matches!(content, TokenSinkResult::RawData(_));
                return content;
            }
            Token::CommentToken(_) | Token::DoctypeToken(_) => {
                state.declarations = state.declarations.saturating_add(1);
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl State {
    fn characters(&mut self, text: &str) {
        if self.in_title {
            let title = self.title.get_or_insert_default();
            let left = TITLE_CHARS_MAX.saturating_sub(title.chars().count());
            title.push_str(cofferdam_guest_kit::server_tool::clip(text, left).text);
            return;
        }
        if self.skip.is_some() {
            return;
        }
        if self.preformatted > 0 {
            let text = if self.pre_begins { text.strip_prefix('\n').unwrap_or(text) } else { text };
            self.pre_begins = false;
            self.writer.verbatim(text);
            return;
        }
        if text.trim().is_empty() {
            self.writer.space();
            return;
        }
        // The space before the first word of a link goes before its bracket.
        let opened = self.open_link(text.starts_with(char::is_whitespace));
        self.writer.flow(if opened { text.trim_start() } else { text });
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let is_foreign = matches!(&*tag.name, "svg" | "math");
        if tag.kind == TagKind::EndTag {
            self.foreign = self.foreign.saturating_sub(u32::from(is_foreign));
            self.end(tag);
            return TokenSinkResult::Continue;
        }
        let content = content(&tag.name);
        let is_raw = !matches!(content, TokenSinkResult::Continue);
        // Outside of pictures and formulas, such a tag begins an element all the same.
        if tag.self_closing && (is_foreign || (is_raw && self.foreign > 0)) {
            return TokenSinkResult::Continue;
        }
        self.foreign = self.foreign.saturating_add(u32::from(is_foreign));
        self.start(tag);
        content
    }

    fn start(&mut self, tag: &Tag) {
        if let Some(skip) = &mut self.skip {
            if skip.start(tag) == Verdict::Inside {
                return;
            }
            self.skip = None;
        }
        if let Some(skip) = Skip::begun_by(tag, self.noise, &self.around) {
            // An omitted block still separates the text before it from the text after it.
            self.block();
            self.skip = Some(skip);
            return;
        }
        self.around.start(&tag.name);
        match &*tag.name {
            "title" => self.in_title = self.title.is_none(),
            "base" => self.rebase(tag),
            "br" if self.preformatted > 0 => self.writer.verbatim("\n"),
            "br" => self.writer.line(),
            "hr" => {
                self.block();
                self.writer.word("---");
                self.block();
            }
            "img" => self.image(tag),
            "a" => self.begin_link(tag),
            "code" | "kbd" | "samp" if self.preformatted == 0 => {
                self.open_link(false);
                self.writer.word("`");
            }
            "pre" => self.begin_preformatted(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(&tag.name),
            "ul" | "menu" => self.begin_list(None),
            "ol" => self.begin_list(Some(
                attribute(tag, "start").and_then(|text| text.trim().parse().ok()).unwrap_or(1),
            )),
            "li" => self.item(),
            "dt" => self.block(),
            "dd" => self.writer.marked_line(": "),
            "blockquote" => {
                self.block();
                self.writer.quotes = self.writer.quotes.saturating_add(1);
            }
            "tr" => self.row(),
            "td" | "th" => self.cell(),
            name if is_block(name) => self.block(),
            _ => {}
        }
    }

    fn end(&mut self, tag: &Tag) {
        if let Some(skip) = &mut self.skip {
            match skip.end(&tag.name) {
                Verdict::Inside => return,
                Verdict::Over => {
                    self.skip = None;
                    return;
                }
                Verdict::Before => self.skip = None,
            }
        }
        self.around.end(&tag.name);
        match &*tag.name {
            "title" => self.in_title = false,
            "a" => self.close_link(),
            "code" | "kbd" | "samp" if self.preformatted == 0 => self.writer.suffix("`"),
            "pre" if self.preformatted > 0 => self.end_preformatted(),
            "ul" | "ol" | "menu" => self.end_list(),
            "blockquote" => {
                self.block();
                self.writer.quotes = self.writer.quotes.saturating_sub(1);
            }
            "li" | "tr" | "dd" | "dt" => {
                self.writer.line();
                self.writer.unmark();
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "table" | "dl" => {
                self.block();
                self.writer.unmark();
            }
            name if is_block(name) && !is_void(name) => self.block(),
            _ => {}
        }
    }

    /// Starts a new block. A link ends at a block.
    fn block(&mut self) {
        if self.preformatted > 0 {
            return;
        }
        if self.link.as_ref().is_some_and(|link| link.written) {
            self.close_link();
        }
        if self.lists.is_empty() { self.writer.block() } else { self.writer.line() }
    }

    fn heading(&mut self, name: &str) {
        self.block();
        let level = name.bytes().last().map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
        self.writer.marked_line(&format!("{} ", "#".repeat(level.clamp(1, 6))));
    }

    fn rebase(&mut self, tag: &Tag) {
        let href = attribute(tag, "href").filter(|href| href.len() <= LINK_BYTES_MAX);
        if let Some(base) = href.and_then(|href| self.base.join(href).ok()) {
            self.base = base;
        }
    }

    fn image(&mut self, tag: &Tag) {
        let alt = attribute(tag, "alt").unwrap_or_default().trim();
        if !alt.is_empty() {
            self.open_link(false);
            self.writer.flow(&format!("[image: {alt}]"));
        }
    }

    fn begin_link(&mut self, tag: &Tag) {
        self.close_link();
        if self.preformatted > 0 {
            return;
        }
        let href = attribute(tag, "href").unwrap_or_default().trim();
        // A link within the page is of no use to a model, nor is one that no tool can open.
        if href.is_empty() || href.starts_with('#') || href.len() > LINK_BYTES_MAX {
            return;
        }
        let target =
            self.base.join(href).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
        self.link = target
            .map(|url| Link { target: url.as_str().replace(')', "%29"), written: false })
            .filter(|link| link.target.len() <= LINK_BYTES_MAX);
    }

    /// Writes the opening bracket of a link before its first word. Returns whether it did.
    fn open_link(&mut self, spaced: bool) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| !link.written) else { return false };
        link.written = true;
        if spaced {
            self.writer.space();
        }
        self.writer.word("[");
        true
    }

    fn close_link(&mut self) {
        if let Some(link) = self.link.take()
            && link.written
        {
            self.writer.suffix(&format!("]({})", link.target));
        }
    }

    fn begin_preformatted(&mut self) {
        if self.preformatted == 0 {
            self.block();
            self.close_link();
            self.writer.word("```");
            self.writer.verbatim("\n");
        }
        self.preformatted = self.preformatted.saturating_add(1);
        self.pre_begins = true;
    }

    fn end_preformatted(&mut self) {
        self.preformatted -= 1;
        if self.preformatted == 0 {
            self.fence();
        }
    }

    fn fence(&mut self) {
        self.preformatted = 0;
        self.writer.line();
        self.writer.word("```");
        self.block();
    }

    fn begin_list(&mut self, number: Option<u32>) {
        self.block();
        if self.lists.len() < LISTS_MAX {
            self.lists.push(number);
        }
        self.writer.lists = self.lists.len();
    }

    fn end_list(&mut self) {
        self.lists.pop();
        self.writer.lists = self.lists.len();
        self.block();
        self.writer.unmark();
    }

    fn item(&mut self) {
        self.close_link();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => "- ".to_owned(),
        };
        self.writer.marked_line(&mark);
    }

    fn row(&mut self) {
        self.close_link();
        self.cells = 0;
        self.writer.marked_line("| ");
    }

    fn cell(&mut self) {
        self.close_link();
        if self.cells > 0 {
            self.writer.suffix(" |");
            self.writer.space();
        }
        self.cells = self.cells.saturating_add(1);
    }
}

/// How the content of an element is read. That of some is not markup, even when they are skipped.
pub(super) fn content(name: &str) -> TokenSinkResult<()> {
    match name {
        "script" => TokenSinkResult::RawData(ScriptData),
        "style" | "iframe" | "noembed" | "noframes" | "xmp" => TokenSinkResult::RawData(Rawtext),
        "title" | "textarea" => TokenSinkResult::RawData(Rcdata),
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "body"
            | "caption"
            | "center"
            | "details"
            | "dialog"
            | "div"
            | "dl"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "legend"
            | "main"
            | "nav"
            | "noscript"
            | "p"
            | "search"
            | "section"
            | "summary"
            | "table"
    )
}
