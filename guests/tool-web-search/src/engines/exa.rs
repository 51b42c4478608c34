//! Exa: `POST /search` with contents, and with the key in `x-api-key`.

use cofferdam_guest_kit::bindings::http::Request;
use serde_json::{Value, json};
use url::Url;

use super::{Raw, entries, filled, text, texts};
use crate::settings::Settings;

pub(super) fn request(query: &str, count: usize, settings: &Settings, url: &Url) -> Request {
    let mut body = json!({
        "query": query,
        "type": settings.mode.as_deref().unwrap_or("auto"),
        "numResults": count,
        "contents": { "text": { "maxCharacters": settings.chars_max } },
    });
    let (only, without) = settings.domains.lists();
    let lists = [("includeDomains", only), ("excludeDomains", without)];
    if let Value::Object(members) = &mut body {
        for (name, domains) in lists.into_iter().filter(|(_, domains)| !domains.is_empty()) {
            members.insert(name.to_owned(), json!(domains));
        }
        if let Some(country) = &settings.location.country {
            members.insert("userLocation".to_owned(), json!(country));
        }
    }
    let json = vec![("content-type".to_owned(), "application/json".to_owned())];
    super::request("POST", url.clone().into(), json, body.to_string().into_bytes())
}

pub(super) fn results(answer: &Value) -> Option<Vec<Raw>> {
    let result = |entry: &Value| {
        let mut found: Vec<String> = filled(entry, "text").into_iter().collect();
        if found.is_empty() {
            found = texts(entry, "highlights");
        }
        if found.is_empty() {
            found.extend(filled(entry, "summary"));
        }
        Raw {
            url: text(entry, "url"),
            title: text(entry, "title"),
            texts: found,
            date: filled(entry, "publishedDate"),
        }
    };
    Some(entries(answer.get("results"))?.map(result).collect())
}
