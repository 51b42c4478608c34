//! The request's own plugin entries: settings for hooks and for model routers.

use super::invalid::{InvalidRequest, quoted};
use super::json::{Kind, Value};
use super::rule::Rule;
use super::shapes::plugins::{EXTRA_PLUGIN, PLUGINS};
use bytes::Bytes;

/// One entry of `plugins`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlugin {
    /// Its place in the request, for messages.
    pub index: usize,
    /// Which plugin: one of the twelve known ids or one of those the caller added.
    pub id: String,
    /// False switches the plugin off for this request, also where it is on by default.
    pub enabled: bool,
    /// The whole entry as JSON.
    pub json: Bytes,
}

/// The most entries of `plugins`.
const PLUGINS_MAX: usize = 64;

impl RequestPlugin {
    /// Checks all of `plugins`. Ids in `extra` are those of installed hooks, which check their own settings.
    ///
    /// # Errors
    /// The first entry that is unknown, malformed or there twice, by path.
    pub(super) fn list(plugins: Value<'_>, extra: &[String]) -> Result<Vec<Self>, InvalidRequest> {
        Rule::List { of: &Rule::Any, min: 0, max: PLUGINS_MAX }.check(plugins)?;
        let mut list: Vec<Self> = Vec::new();
        for (index, entry) in plugins.items().enumerate() {
            let tag = PLUGINS.tag_of(entry)?;
            let id = tag.text();
            // A known id keeps its rules also where a hook of that name is installed.
            let known = PLUGINS.variants.iter().any(|(name, _)| *name == id);
            if !known && extra.iter().any(|name| *name == id) {
                EXTRA_PLUGIN.check(entry)?;
            } else {
                PLUGINS.check(entry)?;
            }
            if list.iter().any(|other| other.id == id) {
                return Err(tag.invalid(format!("names a plugin a second time: \"{}\"", quoted(&id))));
            }
            let enabled = entry.get("enabled").is_none_or(|enabled| enabled.kind() == Kind::True);
            list.push(Self { index, id: id.into_owned(), enabled, json: Bytes::from(entry.compact()) });
        }
        Ok(list)
    }
}
