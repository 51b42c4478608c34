//! A tag, found as the tokenizer finds it, in time proportional to its length.

pub(super) struct Tag<'a> {
    /// The tag up to the end of its name.
    head: &'a str,
    pub(super) name: &'a str,
    attributes: Attributes<'a>,
    pub(super) attribute_count: usize,
    is_self_closing: bool,
    /// Where the page continues after it.
    pub(super) end: usize,
}

impl<'a> Tag<'a> {
    /// The tag that begins at `start`. None if it has no end.
    pub(super) fn scan(html: &'a str, start: usize) -> Option<Self> {
        let page = html.get(start..)?;
        let named = page.strip_prefix("</").or_else(|| page.strip_prefix('<'))?;
        let (name, rest) = named.split_at(named.find(ends_name)?);
        let head = before(page, rest);
        let attributes = Attributes { rest, after_solidus: false };
        let mut scanned = attributes.clone();
        let attribute_count = scanned.by_ref().count();
        let after = scanned.rest.strip_prefix('>')?;
        let is_self_closing = scanned.after_solidus;
        Some(Self { head, name, attributes, attribute_count, is_self_closing, end: html.len() - after.len() })
    }

    /// The tag with only these attributes.
    pub(super) fn with_only(&self, names: &[&str]) -> String {
        let mut missing = names.to_vec();
        let mut tag = self.head.to_owned();
        for Attribute { name, text } in self.attributes.clone() {
            // The first attribute of a name counts.
            if let Some(at) = missing.iter().position(|wanted| wanted.eq_ignore_ascii_case(name)) {
                missing.swap_remove(at);
                tag.push(' ');
                tag.push_str(text);
            }
        }
        tag.push_str(if self.is_self_closing { " />" } else { ">" });
        tag
    }
}

/// Whether a tag with this head, such as `</p`, begins at `start`.
pub(super) fn is_at(html: &str, start: usize, head: &str) -> bool {
    let end = start + head.len();
    html.get(start..end).is_some_and(|text| text.eq_ignore_ascii_case(head))
        && html.get(end..).is_some_and(|rest| rest.starts_with(ends_name))
}

struct Attribute<'a> {
    name: &'a str,
    /// The attribute with its value, as it is in the page.
    text: &'a str,
}

#[derive(Clone)]
struct Attributes<'a> {
    rest: &'a str,
    /// Whether the rest follows a `/` that belongs to no attribute.
    after_solidus: bool,
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let start = self.rest.trim_start_matches(|letter| is_space(letter) || letter == '/');
        self.after_solidus = before(self.rest, start).ends_with('/');
        self.rest = start;
        let first = start.chars().next().filter(|first| *first != '>')?;
        // An equals sign at the beginning belongs to the name.
        let ends = |letter| ends_name(letter) || letter == '=';
        let length = start.get(first.len_utf8()..)?.find(ends)? + first.len_utf8();
        let (name, after) = start.split_at(length);
        self.rest = match after.trim_start_matches(is_space).strip_prefix('=') {
            Some(value) => after_value(value.trim_start_matches(is_space)),
            None => after,
        };
        Some(Attribute { name, text: before(start, self.rest) })
    }
}

/// What follows the value at the beginning of `text`; nothing if the value has no end.
fn after_value(text: &str) -> &str {
    let quoted = |quote| text.strip_prefix(quote).map(|value| value.split_once(quote));
    match quoted('"').or_else(|| quoted('\'')) {
        Some(parts) => parts.map_or("", |(_, rest)| rest),
        None => {
            let end = text.find(|letter| is_space(letter) || letter == '>');
            end.and_then(|end| text.get(end..)).unwrap_or_default()
        }
    }
}

/// What comes before `rest`, the end of `text`. The end is not compared, because it may be the whole page.
fn before<'a>(text: &'a str, rest: &str) -> &'a str {
    text.get(..text.len().saturating_sub(rest.len())).unwrap_or_default()
}

fn ends_name(letter: char) -> bool {
    is_space(letter) || matches!(letter, '/' | '>')
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0c')
}
