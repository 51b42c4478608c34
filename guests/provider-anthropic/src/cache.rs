//! Marks for Anthropic's prompt cache: `cache_control` of the request and its
//! parts, and `prompt_cache_breakpoint` of parts, which means the same.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::blocks::{Block, Turn};
use crate::tools::ToolDefinition;

/// The provider refuses a request with more marks.
const MARKS_MAX: usize = 4;

/// A mark: everything up to here may be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

#[derive(Deserialize)]
struct Mark {
    mode: Option<String>,
    ttl: Option<String>,
}

impl CacheControl {
    /// Reads `cache_control` or `prompt_cache_breakpoint`; `None` for a null or a
    /// mark of another mode than `explicit`.
    pub fn read(raw: &RawValue) -> Option<Self> {
        let mark: Option<Mark> = serde_json::from_str(raw.get()).ok()?;
        let mark = mark.filter(|mark| mark.mode.as_deref().is_none_or(|mode| mode == "explicit"))?;
        Some(CacheControl { kind: "ephemeral", ttl: mark.ttl.as_deref().map(ttl) })
    }
}

/// The provider knows two lifetimes; a longer one is served by the longer.
fn ttl(asked: &str) -> &'static str {
    if asked == "5m" { "5m" } else { "1h" }
}

/// `prompt_cache_options`.
#[derive(Debug, Default, Deserialize)]
pub struct CacheOptions<'a> {
    #[serde(default)]
    mode: Option<String>,
    /// The lifetime for marks that state none.
    #[serde(default, borrow)]
    ttl: Option<&'a RawValue>,
}

impl CacheOptions<'_> {
    /// Only marked parts are to be cached.
    pub fn is_explicit(&self) -> bool {
        self.mode.as_deref() == Some("explicit")
    }

    fn ttl(&self) -> Option<&'static str> {
        let asked: Option<String> = serde_json::from_str(self.ttl?.get()).ok()?;
        asked.as_deref().map(ttl)
    }
}

/// The breakpoints of all parts, by item and part. Read apart from the items and
/// only in explicit mode, so that other requests do not pay for it.
#[derive(Debug, Default)]
pub struct Breakpoints(Vec<Vec<Option<CacheControl>>>);

#[derive(Deserialize)]
struct Marked<'a> {
    #[serde(borrow)]
    input: Vec<MarkedItem<'a>>,
}

#[derive(Deserialize)]
struct MarkedItem<'a> {
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MarkedPart<'a> {
    #[serde(default, borrow)]
    prompt_cache_breakpoint: Option<&'a RawValue>,
}

impl Breakpoints {
    /// Reads the breakpoints of a request in explicit mode.
    pub fn read(request: &[u8], options: &CacheOptions<'_>) -> Self {
        let marked: Result<Marked<'_>, _> = serde_json::from_slice(request);
        let items = marked.map(|marked| marked.input).unwrap_or_default();
        let mark = |raw: &RawValue| {
            CacheControl::read(raw)
                .map(|mark| CacheControl { ttl: mark.ttl.or_else(|| options.ttl()), ..mark })
        };
        let parts = |item: &MarkedItem<'_>| -> Vec<Option<CacheControl>> {
            let raw = item.content.or(item.output).map_or("[]", RawValue::get);
            let parts: Vec<MarkedPart<'_>> = serde_json::from_str(raw).unwrap_or_default();
            parts.iter().map(|part| part.prompt_cache_breakpoint.and_then(mark)).collect()
        };
        Breakpoints(items.iter().map(parts).collect())
    }

    /// The breakpoint of this part.
    pub fn of(&self, item: usize, part: usize) -> Option<CacheControl> {
        *self.0.get(item)?.get(part)?
    }
}

/// Drops marks beyond what the provider takes, earliest first: a later mark
/// covers a longer prefix. `automatic` is the mark of the request itself.
pub fn limit(
    tools: &mut [ToolDefinition<'_>],
    system: &mut [Block<'_>],
    turns: &mut [Turn<'_>],
    automatic: bool,
) {
    let mut marks: Vec<&mut Option<CacheControl>> = Vec::new();
    marks.extend(tools.iter_mut().map(|tool| &mut tool.cache_control));
    marks.extend(system.iter_mut().filter_map(Block::cache_control_mut));
    for block in turns.iter_mut().flat_map(|turn| &mut turn.content) {
        match block {
            Block::ToolResult { content, .. } => {
                marks.extend(content.iter_mut().filter_map(Block::cache_control_mut));
            }
            other => marks.extend(other.cache_control_mut()),
        }
    }
    marks.retain(|mark| mark.is_some());
    let surplus = marks.len().saturating_sub(MARKS_MAX.saturating_sub(usize::from(automatic)));
    for mark in marks.into_iter().take(surplus) {
        *mark = None;
    }
}
