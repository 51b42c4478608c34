//! The client's settings: `parameters` of the tool entry, or the members of a tool entry of the
//! client's own type, which has its domain lists in `filters`.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{DomainRules, Fields};

use crate::config::{Config, Engine};

/// The default and the limit for the number of results of one search.
const RESULTS_DEFAULT: u32 = 5;
const RESULTS_MAX: u32 = 25;
/// The default for the number of results of all searches of a request.
const TOTAL_RESULTS_DEFAULT: u32 = 50;
/// The limit for the number of searches in one request, which is also the default.
const USES_MAX: u32 = 50;
/// The default and the limit for the length of one result's text, in characters.
const CHARS_DEFAULT: u32 = 2_500;
const CHARS_MAX: u32 = 100_000;
/// The longest value for a mode or a part of a location, in bytes.
const WORD_BYTES_MAX: usize = 128;

/// Validated settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) results_max: usize,
    pub(crate) total_results_max: usize,
    pub(crate) uses_max: u32,
    /// The longest text of one result, in characters.
    pub(crate) chars_max: usize,
    pub(crate) domains: DomainRules,
    pub(crate) location: Location,
    /// How thoroughly to search, in the engine's own terms.
    pub(crate) mode: Option<String>,
    /// Whether the tool entry has the client's own tool type.
    pub(crate) is_clients_type: bool,
}

/// The approximate location of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Location {
    /// Two capital letters (ISO 3166-1 alpha-2).
    pub(crate) country: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) city: Option<String>,
    /// The IANA name of the time zone.
    pub(crate) timezone: Option<String>,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub(crate) fn read(fields: &Fields, config: &Config) -> Result<Self, ToolError> {
        check_engine(fields, config.engine)?;
        let results = fields.integer("max_results", 1..=RESULTS_MAX)?.unwrap_or(RESULTS_DEFAULT);
        let total = fields.integer("max_total_results", 1..=u32::MAX)?.unwrap_or(TOTAL_RESULTS_DEFAULT);
        // Larger numbers are reduced to the limit and not refused.
        let uses = fields.integer("max_uses", 1..=u32::MAX)?.unwrap_or(USES_MAX).min(USES_MAX);
        fields.object("x_search")?;
        Ok(Self {
            results_max: results as usize,
            total_results_max: total as usize,
            uses_max: uses,
            chars_max: chars_max(fields)? as usize,
            domains: domains(fields)?,
            location: location(&fields.nested("user_location")?)?,
            mode: word(fields, "mode")?,
            is_clients_type: fields.text("type")?.is_some(),
        })
    }
}

/// Checks `engine`. The operator chooses the engine; a client may name it or leave it open.
fn check_engine(fields: &Fields, engine: Engine) -> Result<(), ToolError> {
    match fields.text("engine")? {
        None | Some("auto") => Ok(()),
        Some(word) if word == engine.word() => Ok(()),
        Some("native") => Err(fields.wrong(
            "engine",
            "\"native\" is an endpoint's own search, which is the tool type web_search; use auto here",
        )),
        Some("exa" | "firecrawl" | "parallel" | "perplexity" | "searxng" | "brave") => {
            Err(fields.wrong("engine", "names an engine that this host has not configured; use auto"))
        }
        Some(_) => Err(fields.wrong("engine", "takes auto, native, exa, firecrawl, parallel or perplexity")),
    }
}

/// The length of one result's text: `max_characters`, or the value for `search_context_size`.
fn chars_max(fields: &Fields) -> Result<u32, ToolError> {
    let size = match fields.text("search_context_size")? {
        None => CHARS_DEFAULT,
        Some("low") => 5_000,
        Some("medium") => 15_000,
        Some("high") => 30_000,
        Some(_) => return Err(fields.wrong("search_context_size", "takes low, medium or high")),
    };
    Ok(fields.integer("max_characters", 1..=CHARS_MAX)?.unwrap_or(size))
}

/// Reads the domain lists: allowed or excluded domains, at the top level or inside `filters`.
fn domains(fields: &Fields) -> Result<DomainRules, ToolError> {
    let filters = &fields.nested("filters")?;
    let lists = [
        (fields, "allowed_domains", "excluded_domains"),
        (filters, "allowed_domains", "excluded_domains"),
        (filters, "allowed_domains", "blocked_domains"),
    ];
    let mut chosen = DomainRules::default();
    for (fields, allowed, excluded) in lists {
        let rules = DomainRules::read_lists(fields, allowed, excluded)?;
        let (only, without) = rules.lists();
        if !only.is_empty() && !without.is_empty() {
            return Err(fields.wrong(allowed, &format!("cannot be combined with {excluded}")));
        }
        if rules.is_empty() || rules == chosen {
            continue;
        }
        if !chosen.is_empty() {
            return Err(fields.wrong(allowed, "and excluded domains are given in two places"));
        }
        chosen = rules;
    }
    Ok(chosen)
}

fn location(fields: &Fields) -> Result<Location, ToolError> {
    let country = match word(fields, "country")? {
        Some(code) if code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Some(code.to_ascii_uppercase())
        }
        Some(_) => return Err(fields.wrong("country", "takes a code of two letters, such as DE")),
        None => None,
    };
    let (region, city) = (word(fields, "region")?, word(fields, "city")?);
    Ok(Location { country, region, city, timezone: word(fields, "timezone")? })
}

/// A short text on one line; blank counts as absent.
fn word(fields: &Fields, name: &str) -> Result<Option<String>, ToolError> {
    let Some(text) = fields.text(name)?.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if text.len() > WORD_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(fields.wrong(name, "must be one short line"));
    }
    Ok(Some(text.to_owned()))
}
