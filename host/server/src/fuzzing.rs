//! Entry points for the fuzz targets in `tests/fuzz`; for `--cfg fuzzing` and the tests below. Each
//! takes arbitrary input and panics when a guarantee is broken.

use std::net::IpAddr;
use std::path::Path;

use http::{HeaderMap, HeaderValue};
use serde::Deserialize;

use crate::admin;
use crate::api::vault::fuzzing as vault;
use crate::config::{Config, ConfigError};
use crate::forwarded;
use crate::route::Route;

/// The one member that is compared; others are ignored.
#[derive(Deserialize)]
struct ReadPut {
    value: String,
}

#[derive(Deserialize)]
struct ReadCopy {
    names: Vec<String>,
}

/// The body of a `PUT`. If it is accepted, it must be JSON with a value of 1 to 65,536 characters.
pub fn put(body: &[u8]) {
    if vault::put(body) {
        let ReadPut { value } = serde_json::from_slice(body).expect("the body is not JSON with a text");
        let characters = value.chars().count();
        assert!((1..=65_536).contains(&characters), "{characters} characters");
    }
    if let Ok(json) = std::str::from_utf8(body) {
        let said = serde_json::from_str::<String>(json).ok();
        // The JSON parser never passes text with anything around the string, so `unescape` may
        // refuse it.
        if let Some(said) = said.filter(|_| json.starts_with('"') && json.ends_with('"')) {
            assert_eq!(vault::unescape(json), Some(said));
        }
    }
}

/// The body of a copy request.
pub fn copy(body: &[u8]) {
    let Some(names) = vault::names(body) else { return };
    assert!((1..=100).contains(&names.len()));
    let read: ReadCopy = serde_json::from_slice(body).unwrap();
    assert_eq!(read.names, names);
}

/// The query of a list.
pub fn query(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Some((offset, limit)) = vault::window(text) {
        assert!(offset <= 10_000 && (1..=100).contains(&limit));
    }
}

/// The path of a request.
pub fn route(path: &[u8]) {
    let Ok(path) = std::str::from_utf8(path) else { return };
    if Route::find(path).is_ok() && path != "/openapi.json" {
        assert!(path.starts_with("/v1/") && !path.ends_with('/') && !path.contains("//"), "{path}");
    }
}

/// The members of a request to the admin API.
pub fn arguments(data: &[u8]) {
    admin::fuzzing::arguments(data);
}

/// The value of `Forwarded` or `X-Forwarded-For` that a trusted proxy has completed: the address that it appended
/// counts, whatever the client wrote before it.
pub fn forwarded(value: &[u8]) {
    let proxy = IpAddr::from([10, 0, 0, 1]);
    let appended = IpAddr::from([192, 0, 2, 7]);
    let trusted = ["10.0.0.0/8".parse().expect("a range")];
    for (name, element) in [("x-forwarded-for", "192.0.2.7"), ("forwarded", "for=192.0.2.7;proto=https")] {
        let whole = [value, b", ", element.as_bytes()].concat();
        let Ok(header) = HeaderValue::from_bytes(&whole) else { return };
        let mut headers = HeaderMap::new();
        headers.insert(name, header);
        let found = forwarded::client(proxy, &headers, &trusted);
        // A value with bytes beyond ASCII is not read at all.
        assert_eq!(
            found,
            if whole.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) { appended } else { proxy }
        );
    }
}

/// The configuration file: a configuration, or mistakes with their places.
pub fn config(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Err(ConfigError::Invalid(problems)) = Config::parse(text, Path::new("/c.toml"), Path::new("/data"))
    {
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(problem.to_string().starts_with("/c.toml:"), "{problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.rs"));

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        each_of("bodies", super::put);
        each_of("bodies", super::copy);
        each_of("bodies", super::query);
        each_of("routes", super::route);
        each_of("config", super::config);
        each_of("arguments", super::arguments);
        each_of("forwarded", super::forwarded);
    }
}
