//! The rules as JSON Schema, draft 2020-12, for the OpenAPI document of the API. A schema takes
//! every value that its rule takes. It takes more values where a rule depends on several members
//! (`Shape::also`), on the whole body, or on how a number is written.

use super::{Field, Shape, TaggedRule, ValueRule};
use serde_json::{Map, Value, json};

impl ValueRule {
    pub(in crate::request) fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Text { min, max } => {
                let least = (*min > 0).then(|| json!(min));
                let most = (*max < usize::MAX).then(|| json!(max));
                bounded(json!({"type": "string"}), [("minLength", least), ("maxLength", most)])
            }
            Self::OneOf(words) => json!({"type": "string", "enum": words}),
            Self::Integer { min, max } => {
                let most = (*max < i64::MAX).then(|| json!(max));
                bounded(json!({"type": "integer"}), [("minimum", Some(json!(min))), ("maximum", most)])
            }
            Self::Number { min, max } => {
                let least = (*min > f64::MIN).then(|| json!(min));
                let most = (*max < f64::MAX).then(|| json!(max));
                bounded(json!({"type": "number"}), [("minimum", least), ("maximum", most)])
            }
            Self::List { of, min, max } => {
                let least = (*min > 0).then(|| json!(min));
                let most = (*max < usize::MAX).then(|| json!(max));
                let list = json!({"type": "array", "items": of.schema()});
                bounded(list, [("minItems", least), ("maxItems", most)])
            }
            Self::Map(of) => json!({"type": "object", "additionalProperties": of.schema()}),
            Self::Object(shape) => shape.schema(),
            Self::Tagged(tagged) => tagged.schema(),
            Self::Either(rules) => json!({"anyOf": rules.iter().map(Self::schema).collect::<Vec<Value>>()}),
            Self::Custom(_, schema) => schema(),
        }
    }
}

impl Shape {
    pub(in crate::request) fn schema(&self) -> Value {
        let properties: Map<String, Value> = self.fields.iter().map(Field::property).collect();
        let required: Vec<&str> = self.fields.iter().filter(|it| it.required).map(|it| it.name).collect();
        let mut schema = json!({"type": "object"});
        if let Some(members) = schema.as_object_mut() {
            members.extend((!properties.is_empty()).then(|| ("properties".to_owned(), properties.into())));
            members.extend((!required.is_empty()).then(|| ("required".to_owned(), json!(required))));
        }
        schema
    }

    /// The schema of an object of this shape that is told from others by the member `tag`, which is
    /// one of `words`.
    pub(in crate::request) fn tagged_schema(&self, tag: &str, words: &[String]) -> Value {
        let mut schema = self.schema();
        if let Some(members) = schema.as_object_mut() {
            let properties = members.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.insert(tag.to_owned(), json!({"type": "string", "enum": words}));
            }
            let required = members.entry("required").or_insert_with(|| json!([]));
            if let Some(required) = required.as_array_mut() {
                required.push(tag.into());
            }
        }
        schema
    }
}

impl Field {
    /// The name of the member and its schema. Null counts as absent, so it is taken where the member
    /// may be absent.
    fn property(&self) -> (String, Value) {
        let schema = self.rule.schema();
        (self.name.to_owned(), if self.required { schema } else { or_null(schema) })
    }
}

impl TaggedRule {
    pub(in crate::request) fn schema(&self) -> Value {
        json!({"oneOf": self.variant_schemas(|_| true)})
    }

    /// The schemas of those variants whose names `wanted` takes.
    pub(in crate::request) fn variant_schemas(&self, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let variants = self.variants.iter().filter(|(name, _)| wanted(name));
        variants.map(|(name, shape)| shape.tagged_schema(self.tag, &[(*name).to_owned()])).collect()
    }
}

/// The schema, for a member that may also be null.
pub(in crate::request) fn or_null(schema: Value) -> Value {
    let takes_all = schema.as_object().is_some_and(Map::is_empty);
    if takes_all || schema == json!({"type": "null"}) {
        return schema;
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn bounded(mut schema: Value, bounds: [(&str, Option<Value>); 2]) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.extend(bounds.into_iter().filter_map(|(word, bound)| Some((word.to_owned(), bound?))));
    }
    schema
}
