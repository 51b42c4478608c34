//! The operator's configuration: `[plugins.tool-web-search.config]`.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;
use url::Url;

/// Pico-dollars in one dollar.
const PICO: f64 = 1e12;
/// The highest price of a search, in dollars. A higher value is most likely a typing error.
const COST_MAX: f64 = 1_000.0;
const KEYS: [&str; 3] = ["engine", "url", "cost_per_search"];

/// A search engine whose protocol this tool supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// A SearXNG instance, asked for JSON.
    SearXng,
    /// Brave's web search.
    Brave,
    /// Exa's search with contents.
    Exa,
}

impl Engine {
    /// The name in the configuration and in requests.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::SearXng => "searxng",
            Self::Brave => "brave",
            Self::Exa => "exa",
        }
    }
}

/// Validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) engine: Engine,
    /// The URL of the engine, without a query.
    pub(crate) url: Url,
    /// The price of one search, in pico-dollars.
    pub(crate) cost_pico: u64,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// When a key is missing, unknown or wrong; the message names it and is for the operator.
    pub(crate) fn read(json: &[u8]) -> Result<Self, ToolError> {
        let fields = Fields::configuration(json)?;
        if let Some(unknown) = fields.names().find(|name| !KEYS.contains(name)) {
            return Err(fields.wrong(unknown, "is no key of this plugin"));
        }
        let (engine, usual) = match fields.text("engine")? {
            Some("searxng") => (Engine::SearXng, None),
            Some("brave") => (Engine::Brave, Some("https://api.search.brave.com/res/v1/web/search")),
            Some("exa") => (Engine::Exa, Some("https://api.exa.ai/search")),
            _ => return Err(fields.wrong("engine", "takes searxng, brave or exa")),
        };
        let Some(written) = fields.text("url")?.or(usual) else {
            return Err(fields.wrong("url", "is required for searxng: https://HOST/search"));
        };
        let url = address(written).ok_or_else(|| {
            fields.wrong("url", "must be an absolute URL with a host and without user, query and fragment")
        })?;
        let cost = fields.number("cost_per_search", 0.0..=f64::MAX)?.unwrap_or(0.0);
        if cost > COST_MAX {
            return Err(fields.wrong("cost_per_search", "must be at most 1000 dollars"));
        }
        // The cast is safe: the value is at most 10^15.
        Ok(Self { engine, url, cost_pico: (cost * PICO).round() as u64 })
    }
}

/// Reads a URL that the host can check. The host decides whether plain `http` is allowed.
fn address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_plain = matches!(url.scheme(), "https" | "http")
        && url.host_str().is_some_and(|host| !host.is_empty())
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    is_plain.then_some(url)
}
