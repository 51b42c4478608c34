//! The protocols of the engines: their requests and answers. Answers are untrusted; parts that do not
//! have the expected form are left out.

mod brave;
mod exa;
mod searxng;

use cofferdam_guest_kit::bindings::http::{HttpError, Request};
use cofferdam_guest_kit::server_tool::{Network, sentence};
use serde_json::Value;

use crate::config::{Config, Engine};
use crate::settings::Settings;

/// The longest answer, in bytes.
const BODY_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// The longest time for one answer, in milliseconds.
const TIMEOUT_MS: u32 = 20_000;
/// The longest query with domains, in bytes. A longer one is sent without the domains.
const QUERY_BYTES_MAX: usize = 3_000;
/// The largest number of results that are read from one answer.
const RESULTS_READ_MAX: usize = 200;

/// A result as the engine returned it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) url: String,
    pub(crate) title: String,
    /// Pieces of the page's text.
    pub(crate) texts: Vec<String>,
    /// The date of publication, in the engine's format.
    pub(crate) date: Option<String>,
}

/// Why there are no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There was no response.
    Network(HttpError),
    /// The engine did not work as expected; a message for the operator.
    Engine(String),
}

impl Failure {
    pub(crate) fn for_model(&self) -> String {
        match self {
            Self::Network(error) => format!("The search engine was not reached. {}", sentence(*error)),
            Self::Engine(message) => {
                format!("The search failed: {message}. Try again later, or answer without it and say so.")
            }
        }
    }
}

/// Asks the configured engine for about `count` results.
///
/// # Errors
///
/// When the engine was not reached, or did not answer as documented.
pub(crate) fn ask(
    query: &str,
    count: usize,
    settings: &Settings,
    config: &Config,
    network: &mut impl Network,
) -> Result<Vec<Raw>, Failure> {
    let request = match config.engine {
        Engine::SearXng => searxng::request(query, settings, &config.url),
        Engine::Brave => brave::request(query, count, settings, &config.url),
        Engine::Exa => exa::request(query, count, settings, &config.url),
    };
    let response = network.send(&request).map_err(Failure::Network)?;
    match response.status {
        200..=299 => {}
        401 | 403 => {
            return Err(Failure::Engine(format!(
                "the search engine refused this host (HTTP {}): its key, or for SearXNG the format json, is \
                 not in order",
                response.status
            )));
        }
        429 => return Err(Failure::Engine("the search engine is asked too often (HTTP 429)".to_owned())),
        status => return Err(Failure::Engine(format!("the search engine answered with HTTP {status}"))),
    }
    let read = match config.engine {
        Engine::SearXng => searxng::results,
        Engine::Brave => brave::results,
        Engine::Exa => exa::results,
    };
    let answer: Value = serde_json::from_slice(&response.body)
        .map_err(|_| Failure::Engine("the search engine's answer is not JSON".to_owned()))?;
    let list = read(&answer)
        .ok_or_else(|| Failure::Engine("the search engine's answer has no results".to_owned()))?;
    Ok(list)
}

/// A request for a JSON answer.
fn request(method: &str, url: String, headers: Vec<(String, String)>, body: Vec<u8>) -> Request {
    let mut all = vec![("accept".to_owned(), "application/json".to_owned())];
    all.extend(headers);
    Request::new(method, url, all, body, BODY_BYTES_MAX, TIMEOUT_MS)
}

/// The query with domains as `site:` operators, which most engines support. The results are filtered
/// here too, so an engine that ignores the operators does no harm.
fn with_sites(query: &str, settings: &Settings) -> String {
    let (only, without) = settings.domains.lists();
    let mut out = query.to_owned();
    let sites: Vec<String> = only.iter().map(|domain| format!("site:{domain}")).collect();
    match sites.as_slice() {
        [] => {}
        [one] => out = format!("{out} {one}"),
        several => out = format!("{out} ({})", several.join(" OR ")),
    }
    for domain in without {
        out = format!("{out} -site:{domain}");
    }
    if out.len() > QUERY_BYTES_MAX { query.to_owned() } else { out }
}

/// The first `RESULTS_READ_MAX` entries of a list.
fn entries(list: Option<&Value>) -> Option<impl Iterator<Item = &Value>> {
    Some(list?.as_array()?.iter().take(RESULTS_READ_MAX))
}

/// A string member; empty when absent.
fn text(entry: &Value, name: &str) -> String {
    entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A string member that is not blank.
fn filled(entry: &Value, name: &str) -> Option<String> {
    Some(text(entry, name)).filter(|text| !text.trim().is_empty())
}

/// The strings in a list member.
fn texts(entry: &Value, name: &str) -> Vec<String> {
    let list = entry.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
