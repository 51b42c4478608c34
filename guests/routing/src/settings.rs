//! Reads a JSON object of settings. Known fields are read strictly: an invalid field is named by its
//! path, with the rule it breaks. Unknown fields are ignored.

use std::ops::RangeInclusive;

use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use serde_json::{Map, Value};

/// The fields of one object. `null` means the same as an absent field.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    path: String,
    members: Map<String, Value>,
}

impl Fields {
    /// Reads an object. No bytes and `null` mean an empty object. `path` is the name of the object in
    /// messages.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn parse(json: &[u8], path: &str) -> Result<Self, Failure> {
        let members = match json {
            // The usual cases need no parser.
            b"" | b"{}" => Map::new(),
            json => match serde_json::from_slice(json) {
                Ok(Value::Object(members)) => members,
                Ok(Value::Null) => Map::new(),
                _ => return Err(invalid(path, "must be an object")),
            },
        };
        Ok(Self { path: path.to_owned(), members })
    }

    /// The error for an invalid field. `rule` says what it must be.
    #[must_use]
    pub fn malformed(&self, name: &str, rule: &str) -> Failure {
        invalid(&format!("{}.{name}", self.path), rule)
    }

    /// All names and values, in the order in which they were written.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value of a field, unless it is absent or null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// A Boolean field.
    ///
    /// # Errors
    /// When the field is not a Boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.malformed(name, "must be true or false"))
    }

    /// A number within `range`.
    ///
    /// # Errors
    /// When the field is not a number, or out of range.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (start, end) = (range.start(), range.end());
            let rule = if *end < f64::MAX {
                format!("must be a number from {start} to {end}")
            } else {
                format!("must be a number of at least {start}")
            };
            self.malformed(name, &rule)
        })
    }

    /// An amount of dollars: a number or a decimal string, at least 0.
    ///
    /// # Errors
    /// When the field is neither, or the amount is negative.
    pub fn dollars(&self, name: &str) -> Result<Option<f64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_f64(),
        };
        let amount = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        amount
            .map(Some)
            .ok_or_else(|| self.malformed(name, "must be a number or a decimal string, at least 0"))
    }

    /// A field that is one of `words`.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn word<'w>(&self, name: &str, words: &[&'w str]) -> Result<Option<&'w str>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let known = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
        known.map(|word| Some(*word)).ok_or_else(|| {
            let rule = format!("must be one of {}", words.join(", "));
            self.malformed(name, &rule)
        })
    }

    /// A list of strings.
    ///
    /// # Errors
    /// When the field is not a list, or an entry is not a string.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<&str>>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.malformed(name, "must be a list of strings"))?;
        let text = |(place, entry): (usize, &'_ Value)| match entry {
            Value::String(_) => Ok(()),
            _ => Err(self.malformed(&format!("{name}[{place}]"), "must be a string")),
        };
        list.iter().enumerate().try_for_each(text)?;
        Ok(Some(list.iter().filter_map(Value::as_str).collect()))
    }

    /// A nested object.
    ///
    /// # Errors
    /// When the field is not an object.
    pub fn object(&self, name: &str) -> Result<Option<Self>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(members)) => {
                Ok(Some(Self { path: format!("{}.{name}", self.path), members: members.clone() }))
            }
            Some(_) => Err(self.malformed(name, "must be an object")),
        }
    }
}

/// The failure for an invalid field, as a sentence: `provider.order[1] must be a string`.
fn invalid(path: &str, rule: &str) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, format!("{path} {rule}"))
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn nothing_is_an_empty_object() {
        for json in ["", "{}", "null", " {} "] {
            assert_eq!(Fields::parse(json.as_bytes(), "p").unwrap().entries().count(), 0, "{json}");
        }
        for json in ["[]", "7", "{", "\"{}\"", "{} {}"] {
            let error = Fields::parse(json.as_bytes(), "p").unwrap_err();
            assert_eq!(error.message, "p must be an object", "{json}");
        }
    }

    #[test]
    fn invalid_fields_are_named_with_their_rule() {
        let json = r#"{"f":1,"n":"x","big":11,"d":"-1","w":"blue","l":["a",2],"m":"a","o":[],"none":null}"#;
        let fields = Fields::parse(json.as_bytes(), "p").unwrap();
        let errors = [
            fields.flag("f").unwrap_err(),
            fields.number("n", 0.0..=10.0).unwrap_err(),
            fields.number("big", 0.0..=10.0).unwrap_err(),
            fields.number("n", 0.0..=f64::MAX).unwrap_err(),
            fields.dollars("d").unwrap_err(),
            fields.word("w", &["red", "green"]).unwrap_err(),
            fields.texts("l").unwrap_err(),
            fields.texts("m").unwrap_err(),
            fields.object("o").unwrap_err(),
        ];
        let expected = [
            "p.f must be true or false",
            "p.n must be a number from 0 to 10",
            "p.big must be a number from 0 to 10",
            "p.n must be a number of at least 0",
            "p.d must be a number or a decimal string, at least 0",
            "p.w must be one of red, green",
            "p.l[1] must be a string",
            "p.m must be a list of strings",
            "p.o must be an object",
        ];
        assert_eq!(errors.map(|error| error.message), expected);
        assert_eq!(fields.flag("none"), Ok(None));
        assert_eq!(fields.texts("absent"), Ok(None));
    }
}
