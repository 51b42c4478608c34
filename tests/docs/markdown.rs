//! What the tests look at in a page: its blocks of code, links and headings.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A page of the repository.
pub(super) struct Page {
    /// Where it is, from the root of the repository.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) blocks: Vec<Block>,
    /// Links and pictures, each with its line.
    pub(super) links: Vec<(String, usize)>,
    /// What links can name behind `#`.
    pub(super) anchors: Vec<String>,
}

/// A fenced block of code.
pub(super) struct Block {
    /// Page and line, for messages.
    pub(super) place: String,
    /// What stands behind the fence, such as `toml` or `console run=NAME`.
    pub(super) info: String,
    pub(super) text: String,
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// `README.md` and all pages below `docs/`.
pub(super) fn pages() -> Vec<Page> {
    let root = root();
    let mut paths = vec![root.join("README.md")];
    crate::kit::host::list_files(&root.join("docs"), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.into_iter().map(Page::read).collect()
}

impl Page {
    /// Reads a page.
    pub(super) fn read(path: PathBuf) -> Self {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut page = Self { name, path, text, blocks: Vec::new(), links: Vec::new(), anchors: Vec::new() };
        page.parse();
        page
    }

    fn parse(&mut self) {
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
        // The text of the heading or block that is open.
        let mut inner = String::new();
        let mut met = BTreeMap::new();
        for (event, range) in Parser::new_ext(&self.text, options).into_offset_iter() {
            let line = self.text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Heading { .. }) => inner.clear(),
                Event::Start(Tag::CodeBlock(kind)) => {
                    inner.clear();
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    self.blocks.push(Block {
                        place: format!("{}:{line}", self.name),
                        info,
                        text: String::new(),
                    });
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    self.links.push((dest_url.to_string(), line));
                }
                Event::Text(text) | Event::Code(text) => inner.push_str(&text),
                Event::End(TagEnd::Heading(_)) => self.anchors.push(anchor(&inner, &mut met)),
                Event::End(TagEnd::CodeBlock) => {
                    self.blocks.last_mut().unwrap().text = std::mem::take(&mut inner);
                }
                _ => {}
            }
        }
    }
}

/// GitHub's name of a heading: small letters, spaces as hyphens, no punctuation, and a number from the second
/// heading of a name on.
fn anchor(heading: &str, met: &mut BTreeMap<String, usize>) -> String {
    let keeps = |letter: &char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' ');
    let name: String = heading.trim().to_lowercase().chars().filter(keeps).collect();
    let name = name.replace(' ', "-");
    let count = met.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
}

#[test]
fn headings_are_named_as_on_github() {
    let mut met = BTreeMap::new();
    let mut anchor = |heading| anchor(heading, &mut met);
    assert_eq!(anchor("What is `max_cost` for, exactly?"), "what-is-max_cost-for-exactly");
    assert_eq!(anchor("Stop - and start"), "stop---and-start");
    assert_eq!(anchor("Keys"), "keys");
    assert_eq!(anchor("Keys"), "keys-1");
}
