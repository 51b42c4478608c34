//! Access for fuzz targets to the parsers of vault requests.

use super::input::{self, Put};
use crate::api::query::PageWindow;

pub(crate) fn put(body: &[u8]) -> bool {
    Put::parse(body).is_ok()
}

pub(crate) fn unescape(json: &str) -> Option<String> {
    crate::command::unescape(json).map(|text| text.to_string())
}

pub(crate) fn names(body: &[u8]) -> Option<Vec<String>> {
    let names = input::names(body).ok()?;
    Some(names.iter().map(|name| name.as_str().to_owned()).collect())
}

pub(crate) fn window(query: &str) -> Option<(usize, usize)> {
    PageWindow::parse(query).ok().map(|window| (window.offset, window.limit))
}
