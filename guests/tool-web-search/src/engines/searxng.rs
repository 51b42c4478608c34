//! SearXNG: `GET /search?q=...&format=json`. The format `json` must be enabled in the instance.

use cofferdam_guest_kit::bindings::http::Request;
use serde_json::Value;
use url::Url;

use super::{Raw, entries, filled, text, with_sites};
use crate::settings::Settings;

/// Builds a request. SearXNG has no parameter for the number of results: a page has all results of
/// its engines.
pub(super) fn request(query: &str, settings: &Settings, url: &Url) -> Request {
    let mut url = url.clone();
    url.query_pairs_mut().append_pair("q", &with_sites(query, settings)).append_pair("format", "json");
    super::request("GET", url.into(), Vec::new(), Vec::new())
}

pub(super) fn results(answer: &Value) -> Option<Vec<Raw>> {
    let result = |entry: &Value| Raw {
        url: text(entry, "url"),
        title: text(entry, "title"),
        texts: filled(entry, "content").into_iter().collect(),
        date: filled(entry, "publishedDate"),
    };
    Some(entries(answer.get("results"))?.map(result).collect())
}
