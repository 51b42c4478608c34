//! Entries of `plugins`: settings for hooks, model routers and server tools, from a request or from
//! the configured defaults.

use super::invalid::{InvalidRequest, quoted};
use super::json::{JsonDocument, JsonKind, JsonValue};
use super::rule::ValueRule;
use super::shapes::plugins::{EXTRA_PLUGIN, PLUGINS};
use bytes::Bytes;
use serde_json::Map;

/// One entry of `plugins`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPlugin {
    /// The index in the request, for error messages; none for a default that the request does not
    /// name.
    pub index: Option<usize>,
    /// The plugin's id: one of the known ids, or the id of an installed hook or model router.
    pub id: String,
    /// False switches the plugin off for this request, even where it is on by default.
    pub enabled: bool,
    /// The whole entry as JSON.
    pub json: Bytes,
}

/// The member that switches a plugin on or off.
const ENABLED: &str = "enabled";

/// The most entries of `plugins`.
pub(super) const PLUGINS_MAX: usize = 64;

impl RequestPlugin {
    /// Checks all entries. `extra` are the ids of installed hooks and model routers, which check their
    /// own settings.
    ///
    /// # Errors
    /// The first entry that is unknown, malformed or repeated, with its path.
    pub(super) fn list(plugins: JsonValue<'_>, extra: &[String]) -> Result<Vec<Self>, InvalidRequest> {
        ValueRule::List { of: &ValueRule::Any, min: 0, max: PLUGINS_MAX }.check(plugins)?;
        let mut list: Vec<Self> = Vec::new();
        for (index, value) in plugins.items().enumerate() {
            let entry = Self { index: Some(index), ..Self::check(value, extra)? };
            if list.iter().any(|other| other.id == entry.id) {
                let id = quoted(&entry.id);
                let tag = PLUGINS.tag_of(value)?;
                return Err(tag.invalid(format!("names a plugin a second time: \"{id}\"")));
            }
            list.push(entry);
        }
        Ok(list)
    }

    /// Checks one entry on its own, as in the configured defaults. `extra` are the ids of installed
    /// hooks and model routers.
    ///
    /// # Errors
    /// The first violation. Its path starts at the entry, as in `cost_tier`.
    pub fn parse(json: &[u8], extra: &[String]) -> Result<Self, InvalidRequest> {
        let document = JsonDocument::parse(json)?;
        Self::check(document.root(), extra)
    }

    fn check(entry: JsonValue<'_>, extra: &[String]) -> Result<Self, InvalidRequest> {
        let id = PLUGINS.tag_of(entry)?.text();
        // A known id keeps its rules even if a hook with the same name is installed.
        let known = PLUGINS.variants.iter().any(|(name, _)| *name == id);
        if !known && extra.iter().any(|name| *name == id) {
            EXTRA_PLUGIN.check(entry)?;
        } else {
            PLUGINS.check(entry)?;
        }
        let enabled = entry.get("enabled").is_none_or(|enabled| enabled.kind() == JsonKind::True);
        Ok(Self { index: None, id: id.into_owned(), enabled, json: Bytes::from(entry.compact()) })
    }

    /// The path of the entry in error messages: `plugins[2]`, or the id for a default.
    #[must_use]
    pub fn path(&self) -> String {
        self.index.map_or_else(|| quoted(&self.id), |index| format!("plugins[{index}]"))
    }

    /// This entry combined with a default: its own members win, the remaining ones are those of the
    /// default. `enabled` is never taken from the default, because naming a plugin asks for it.
    #[must_use]
    pub fn over(self, default: &Self) -> Self {
        let mut members = default.members();
        members.remove(ENABLED);
        members.extend(self.members());
        Self { json: Bytes::from(serde_json::Value::Object(members).to_string()), ..self }
    }

    /// Whether this entry changes nothing of a default.
    #[must_use]
    pub fn agrees_with(&self, default: &Self) -> bool {
        let theirs = default.members();
        let same =
            |(name, value): (&String, &serde_json::Value)| name == ENABLED || theirs.get(name) == Some(value);
        self.enabled == default.enabled && self.members().iter().all(same)
    }

    /// The members that are set; null members are not.
    fn members(&self) -> Map<String, serde_json::Value> {
        // The entry was checked to be an object.
        let members: Map<String, serde_json::Value> = serde_json::from_slice(&self.json).unwrap_or_default();
        members.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}
