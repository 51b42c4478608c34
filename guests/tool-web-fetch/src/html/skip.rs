//! The parts of a page that are not content: elements that never contain text, hidden elements, and
//! elements that only lead to other pages.

use html5ever::LocalName;
use html5ever::tokenizer::Tag;

/// Whether navigation and similar elements are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    Drop,
    Keep,
}

/// An element that is being skipped.
#[derive(Debug)]
pub(crate) struct Skip {
    name: LocalName,
    /// The number of open elements with this name, including this one.
    open: u32,
    /// The number of containers opened inside, for elements with an optional end tag.
    containers: u32,
    /// Whether the element only leads to other pages. Others are skipped to their end, whatever they
    /// contain.
    is_navigation: bool,
}

/// The open elements inside of which an aside, a footer or a button is content.
#[derive(Debug, Default)]
pub(crate) struct Around {
    mains: u32,
    articles: u32,
    quotes: u32,
    /// Headings do not nest.
    heading: bool,
}

impl Around {
    /// Handles a start tag that is not skipped.
    pub(crate) fn start(&mut self, name: &str) {
        if is_heading(name) {
            self.heading = true;
        } else if let Some(open) = self.counter(name) {
            *open = open.saturating_add(1);
        }
    }

    /// Handles an end tag that is not skipped. Any heading's end tag ends a heading.
    pub(crate) fn end(&mut self, name: &str) {
        if is_heading(name) {
            self.heading = false;
        } else if let Some(open) = self.counter(name) {
            *open = open.saturating_sub(1);
        }
    }

    /// Each name has its own counter, so that an end tag too many ends nothing else.
    fn counter(&mut self, name: &str) -> Option<&mut u32> {
        match name {
            "main" => Some(&mut self.mains),
            "article" => Some(&mut self.articles),
            "blockquote" => Some(&mut self.quotes),
            _ => None,
        }
    }

    fn is_content(&self) -> bool {
        self.mains > 0 || self.articles > 0 || self.quotes > 0
    }
}

/// What a tag means for the skipped element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The tag is inside the skipped element.
    Inside,
    /// The skipped element ends with this tag.
    Over,
    /// The skipped element ended before this tag. The tag is content.
    Before,
}

impl Skip {
    /// Starts a skip if the element of this start tag is not content.
    pub(crate) fn begun_by(tag: &Tag, noise: Noise, around: &Around) -> Option<Self> {
        let name: &str = &tag.name;
        if is_void(name) {
            return None;
        }
        let is_navigation = !is_never_text(name) && !is_hidden(tag);
        if is_navigation && (noise == Noise::Keep || !leads_elsewhere(name, tag, around)) {
            return None;
        }
        Some(Self { name: tag.name.clone(), open: 1, containers: 0, is_navigation })
    }

    /// Handles a start tag inside.
    pub(crate) fn start(&mut self, tag: &Tag) -> Verdict {
        let name: &str = &tag.name;
        let ends_itself = has_optional_end(&self.name);
        if tag.name == self.name {
            if ends_itself && self.containers == 0 {
                return Verdict::Before;
            }
            self.open = self.open.saturating_add(1);
        } else if name == "main" && self.is_navigation {
            // A navigation without an end tag must not hide the whole page.
            return Verdict::Before;
        } else if ends_itself && is_container(name) {
            if &*self.name == "p" {
                return Verdict::Before;
            }
            self.containers = self.containers.saturating_add(1);
        }
        Verdict::Inside
    }

    /// Handles an end tag inside.
    pub(crate) fn end(&mut self, name: &LocalName) -> Verdict {
        if *name == self.name {
            self.open -= 1;
            return if self.open == 0 { Verdict::Over } else { Verdict::Inside };
        }
        if has_optional_end(&self.name) && is_container(name) {
            if self.containers == 0 {
                return Verdict::Before;
            }
            self.containers -= 1;
        }
        Verdict::Inside
    }
}

/// Whether elements with this name have no end tag.
pub(crate) fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

fn is_never_text(name: &str) -> bool {
    matches!(
        name,
        "script"
            | "style"
            | "template"
            | "svg"
            | "canvas"
            | "iframe"
            | "object"
            | "audio"
            | "video"
            | "map"
            | "select"
            | "datalist"
            | "textarea"
            | "noframes"
            | "noembed"
    )
}

fn is_heading(name: &str) -> bool {
    matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6")
}

fn leads_elsewhere(name: &str, tag: &Tag, around: &Around) -> bool {
    let by_name = match name {
        "nav" | "dialog" => true,
        // Within the content, these are a warning, the source of a quotation or the like.
        "footer" | "aside" => !around.is_content(),
        // The heading of a part that opens is a button.
        "button" => !around.heading,
        _ => false,
    };
    by_name
        || attribute(tag, "role").is_some_and(|role| {
            matches!(
                role.trim(),
                "navigation"
                    | "contentinfo"
                    | "search"
                    | "complementary"
                    | "menu"
                    | "menubar"
                    | "dialog"
                    | "alertdialog"
            )
        })
}

/// Whether an element is hidden. Text that people do not see must not reach a model, because it is a
/// common place for prompt injections. `html` and `body` are exempt: pages hide them until their
/// script has run.
fn is_hidden(tag: &Tag) -> bool {
    if matches!(&*tag.name, "html" | "body") {
        return false;
    }
    if attribute(tag, "hidden").is_some_and(|value| value != "until-found")
        || attribute(tag, "aria-hidden").is_some_and(|value| value.trim() == "true")
    {
        return true;
    }
    attribute(tag, "style").is_some_and(|style| {
        let style: String = style.chars().filter(|char| !char.is_whitespace()).collect();
        let style = style.to_ascii_lowercase();
        let says = |rule: &str| style.split(';').any(|part| part.trim_end_matches("!important") == rule);
        says("display:none")
            || says("visibility:hidden")
            || says("opacity:0")
            || says("font-size:0")
            || says("font-size:0px")
    })
}

/// The attributes that a renderer reads. Those of other names may be missing in its tags.
pub(crate) const ATTRIBUTES_READ: [&str; 7] =
    ["hidden", "aria-hidden", "style", "role", "href", "alt", "start"];

/// The value of an attribute that is read.
pub(crate) fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    debug_assert!(ATTRIBUTES_READ.contains(&name), "{name}");
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

/// Whether elements with this name may end without an end tag: at the next element of their kind, or
/// with their container.
fn has_optional_end(name: &str) -> bool {
    matches!(name, "p" | "li" | "dt" | "dd" | "option" | "tr" | "td" | "th" | "thead" | "tbody" | "tfoot")
}

fn is_container(name: &str) -> bool {
    matches!(
        name,
        "ul" | "ol"
            | "dl"
            | "table"
            | "div"
            | "section"
            | "article"
            | "main"
            | "body"
            | "blockquote"
            | "form"
            | "fieldset"
            | "figure"
            | "header"
            | "footer"
            | "nav"
            | "aside"
            | "details"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "pre"
            | "hr"
    )
}
