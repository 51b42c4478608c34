//! Marks for Anthropic's prompt cache: `cache_control` of the request and its parts, and
//! `prompt_cache_breakpoint` of parts, which has the same meaning.

use cofferdam_guest_kit::Marks;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A cache mark: everything up to the marked block may be cached.
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
    /// A mark with this lifetime.
    pub fn lasting(ttl: Option<&'static str>) -> Self {
        CacheControl { kind: "ephemeral", ttl }
    }

    /// Reads `cache_control` or `prompt_cache_breakpoint`. Returns `None` for `null` and for a mark
    /// whose mode is not `explicit`.
    pub fn read(raw: &RawValue) -> Option<Self> {
        let mark: Option<Mark> = serde_json::from_str(raw.get()).ok()?;
        let mark = mark.filter(|mark| mark.mode.as_deref().is_none_or(|mode| mode == "explicit"))?;
        Some(Self::lasting(mark.ttl.as_deref().map(ttl)))
    }
}

/// The provider has two lifetimes. Every value except `5m` becomes the longer one.
fn ttl(asked: &str) -> &'static str {
    if asked == "5m" { "5m" } else { "1h" }
}

/// `prompt_cache_options`.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct CacheOptions<'a> {
    mode: Option<String>,
    /// The lifetime for marks that have none.
    ttl: Option<&'a RawValue>,
}

impl CacheOptions<'_> {
    /// Whether only marked parts should be cached.
    pub fn is_explicit(&self) -> bool {
        self.mode.as_deref() == Some("explicit")
    }

    /// Whether the provider should choose what is cached (Anthropic's automatic caching).
    pub fn asks_for_automatic(&self) -> bool {
        self.mode.as_deref() == Some("implicit")
    }

    /// The lifetime for marks that have none.
    pub fn ttl(&self) -> Option<&'static str> {
        let asked: Option<String> = serde_json::from_str(self.ttl?.get()).ok()?;
        asked.as_deref().map(ttl)
    }
}

/// How the marks of parts are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marking {
    /// The lifetime for breakpoints that have none.
    pub ttl: Option<&'static str>,
}

impl Marking {
    /// The mark of a part: its breakpoint, otherwise its `cache_control`.
    pub fn of(self, marks: &Marks<'_>) -> Option<CacheControl> {
        let breakpoint = marks.breakpoint.and_then(CacheControl::read);
        let breakpoint = breakpoint.map(|mark| CacheControl { ttl: mark.ttl.or(self.ttl), ..mark });
        breakpoint.or_else(|| marks.cache_control.and_then(CacheControl::read))
    }
}
