//! Brave: `GET /res/v1/web/search` with the key in `X-Subscription-Token`. A query may have at most
//! 400 characters and 50 words, an answer at most 20 results.

use cofferdam_guest_kit::bindings::http::Request;
use cofferdam_guest_kit::server_tool::clip;
use serde_json::Value;
use url::Url;

use super::{Raw, entries, filled, text, texts, with_sites};
use crate::settings::{Location, Settings};

const QUERY_CHARS_MAX: usize = 400;
const QUERY_WORDS_MAX: usize = 50;
const RESULTS_MAX: usize = 20;
/// The values of `country` that Brave accepts, without `ALL`. It answers others with the status 422.
const COUNTRIES: [&str; 36] = [
    "AR", "AU", "AT", "BE", "BR", "CA", "CL", "DK", "FI", "FR", "DE", "HK", "IN", "ID", "IT", "JP", "KR",
    "MY", "MX", "NL", "NZ", "NO", "CN", "PL", "PT", "PH", "RU", "SA", "ZA", "ES", "SE", "CH", "TW", "TR",
    "GB", "US",
];

pub(super) fn request(query: &str, count: usize, settings: &Settings, url: &Url) -> Request {
    let with_sites = with_sites(query, settings);
    let query = if fits(&with_sites) { with_sites } else { shortened(query) };
    let mut url = url.clone();
    // The client's domain rules may remove results, so more are requested.
    let count = if settings.domains.is_empty() { count.min(RESULTS_MAX) } else { RESULTS_MAX };
    url.query_pairs_mut()
        .append_pair("q", &query)
        .append_pair("count", &count.to_string())
        .append_pair("result_filter", "web")
        .append_pair("text_decorations", "false")
        .append_pair("extra_snippets", "true");
    let country = settings.location.country.as_deref().filter(|code| COUNTRIES.contains(code));
    if let Some(country) = country {
        url.query_pairs_mut().append_pair("country", country);
    }
    super::request("GET", url.into(), headers(&settings.location), Vec::new())
}

fn fits(query: &str) -> bool {
    query.chars().count() <= QUERY_CHARS_MAX && query.split_whitespace().count() <= QUERY_WORDS_MAX
}

fn shortened(query: &str) -> String {
    let words: Vec<&str> = query.split_whitespace().take(QUERY_WORDS_MAX).collect();
    clip(&words.join(" "), QUERY_CHARS_MAX).text.to_owned()
}

/// The headers for the user's location. Values that a header cannot carry are left out.
fn headers(location: &Location) -> Vec<(String, String)> {
    let parts = [
        ("x-loc-country", &location.country),
        ("x-loc-state-name", &location.region),
        ("x-loc-city", &location.city),
        ("x-loc-timezone", &location.timezone),
    ];
    let is_plain = |value: &String| value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    parts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone().filter(is_plain)?)))
        .collect()
}

pub(super) fn results(answer: &Value) -> Option<Vec<Raw>> {
    // Without results, the answer has no member `web`.
    let Some(web) = answer.get("web") else { return answer.is_object().then(Vec::new) };
    let result = |entry: &Value| {
        let mut found: Vec<String> = filled(entry, "description").into_iter().collect();
        found.extend(texts(entry, "extra_snippets"));
        Raw {
            url: text(entry, "url"),
            title: text(entry, "title"),
            texts: found,
            date: filled(entry, "page_age").or_else(|| filled(entry, "age")),
        }
    };
    Some(entries(web.get("results"))?.map(result).collect())
}
