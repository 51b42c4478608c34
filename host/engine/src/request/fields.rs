//! The known members of a body, collected in one pass.

use super::invalid::InvalidRequest;
use super::json::JsonValue;
use super::rule::Shape;

/// Members that have a rule and are not null, each already checked by its rule.
#[derive(Debug)]
pub(super) struct BodyFields<'d>(Vec<(&'static str, JsonValue<'d>)>);

impl<'d> BodyFields<'d> {
    pub(super) fn check(shape: &'static Shape, body: JsonValue<'d>) -> Result<Self, InvalidRequest> {
        let mut fields = Vec::with_capacity(16);
        shape.visit(body, |name, value| fields.push((name, value)))?;
        Ok(Self(fields))
    }

    pub(super) fn get(&self, name: &str) -> Option<JsonValue<'d>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Sets a member, and replaces the value that it had.
    pub(super) fn set(&mut self, name: &'static str, value: JsonValue<'d>) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.text().into_owned())
    }

    /// The strings of an array; empty where the member is absent.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.get(name).into_iter().flat_map(JsonValue::items);
        items.map(|value| value.text().into_owned()).collect()
    }

    pub(super) fn count(&self, name: &str) -> Option<u32> {
        self.get(name).and_then(JsonValue::integer).and_then(|count| u32::try_from(count).ok())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(JsonValue::is_true)
    }
}
