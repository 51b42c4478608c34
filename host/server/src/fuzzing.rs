//! Doors for the fuzz targets in `tests/fuzz`, there under `--cfg fuzzing` only. Each
//! takes what anybody may send and panics when a promise about it does not hold.

use std::path::Path;

use serde_json::Value;

use crate::api::vault::doors;
use crate::config::{Config, ConfigError};
use crate::route::Route;

/// The body of a `PUT`: taken only if it is JSON with a text of 1 to 65,536
/// characters, which is then that text.
pub fn put(body: &[u8]) {
    let value = serde_json::from_slice::<Value>(body).ok();
    let text = value.as_ref().and_then(|body| body["value"].as_str());
    if doors::put(body) {
        let characters = text.expect("the body is not JSON with a text").chars().count();
        assert!((1..=65_536).contains(&characters), "{characters} characters");
    }
    if let Ok(json) = std::str::from_utf8(body) {
        let said = serde_json::from_str::<String>(json).ok();
        // What the parser never hands on, a text with something around it, may be refused here.
        if let Some(said) = said.filter(|_| json.starts_with('"') && json.ends_with('"')) {
            assert_eq!(doors::unescape(json), Some(said));
        }
    }
}

/// The body of a copy.
pub fn copy(body: &[u8]) {
    let Some(names) = doors::names(body) else { return };
    assert!((1..=100).contains(&names.len()));
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["names"], serde_json::json!(names));
}

/// The query of a listing.
pub fn query(text: &str) {
    if let Some((offset, limit)) = doors::window(text) {
        assert!(offset <= 10_000 && (1..=100).contains(&limit));
    }
}

/// A path.
pub fn route(path: &str) {
    if Route::find(path).is_ok() {
        assert!(path.starts_with("/v1/") && !path.ends_with('/') && !path.contains("//"), "{path}");
    }
}

/// A configuration file.
pub fn config(text: &str) {
    if let Err(ConfigError::Invalid(problems)) = Config::parse(text, Path::new("/c.toml"), Path::new("/data"))
    {
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(problem.to_string().starts_with("/c.toml:"), "{problem}");
        }
    }
}
