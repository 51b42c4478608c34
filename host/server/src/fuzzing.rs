//! Entry points for the fuzz targets in `tests/fuzz`; they exist only under `--cfg fuzzing`. Each
//! takes arbitrary input and panics when a guarantee is broken.

use std::path::Path;

use serde::Deserialize;

use crate::api::vault::doors;
use crate::config::{Config, ConfigError};
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
    if doors::put(body) {
        let ReadPut { value } = serde_json::from_slice(body).expect("the body is not JSON with a text");
        let characters = value.chars().count();
        assert!((1..=65_536).contains(&characters), "{characters} characters");
    }
    if let Ok(json) = std::str::from_utf8(body) {
        let said = serde_json::from_str::<String>(json).ok();
        // The JSON parser never passes text with anything around the string, so `unescape` may
        // refuse it.
        if let Some(said) = said.filter(|_| json.starts_with('"') && json.ends_with('"')) {
            assert_eq!(doors::unescape(json), Some(said));
        }
    }
}

/// The body of a copy request.
pub fn copy(body: &[u8]) {
    let Some(names) = doors::names(body) else { return };
    assert!((1..=100).contains(&names.len()));
    let read: ReadCopy = serde_json::from_slice(body).unwrap();
    assert_eq!(read.names, names);
}

/// The query of a list.
pub fn query(text: &str) {
    if let Some((offset, limit)) = doors::window(text) {
        assert!(offset <= 10_000 && (1..=100).contains(&limit));
    }
}

pub fn route(path: &str) {
    if Route::find(path).is_ok() {
        assert!(path.starts_with("/v1/") && !path.ends_with('/') && !path.contains("//"), "{path}");
    }
}

pub fn config(text: &str) {
    if let Err(ConfigError::Invalid(problems)) = Config::parse(text, Path::new("/c.toml"), Path::new("/data"))
    {
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(problem.to_string().starts_with("/c.toml:"), "{problem}");
        }
    }
}
