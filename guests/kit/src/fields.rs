//! Fields of a JSON object from an untrusted source: the client's settings, or the arguments that a model
//! chose. Known fields are read strictly: a wrong field is named by its path, with the rule it breaks.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::bindings::types::{ErrorKind, Failure};

/// An object whose fields are read one by one. `null` means the same as an absent field.
#[derive(Debug)]
pub struct Fields<E = Failure> {
    map: Map<String, Value>,
    /// Put before a field's name in error messages.
    prefix: String,
    complain: fn(String) -> E,
}

impl Fields {
    /// Reads an object. No bytes and `null` mean an empty object. `path` is the name of the object in
    /// messages.
    ///
    /// # Errors
    ///
    /// An invalid request, when it is not a JSON object.
    pub fn parse(json: &[u8], path: &str) -> Result<Self, Failure> {
        let invalid: fn(String) -> Failure = |message| Failure::new(ErrorKind::InvalidRequest, message);
        Self::read(json, format!("{path}."), invalid)
            .ok_or_else(|| invalid(format!("{path} must be an object")))
    }
}

impl<E> Fields<E> {
    /// Reads an object; `None` when it is not one.
    pub(crate) fn read(json: &[u8], prefix: String, complain: fn(String) -> E) -> Option<Self> {
        let map = match json.trim_ascii() {
            // The usual cases need no parser.
            b"" | b"{}" | b"null" => Map::new(),
            json => serde_json::from_slice(json).ok()?,
        };
        Some(Self { map, prefix, complain })
    }

    /// A nested object; empty when absent. Error messages put its name before the names of its fields.
    ///
    /// # Errors
    ///
    /// When the field is not an object.
    pub fn nested(&self, name: &str) -> Result<Self, E> {
        let map = self.object(name)?.cloned().unwrap_or_default();
        Ok(Self { map, prefix: format!("{}{name}.", self.prefix), complain: self.complain })
    }

    /// The names of all fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// The error for a wrong field: its name and what it takes.
    #[must_use]
    pub fn wrong(&self, name: &str, takes: &str) -> E {
        (self.complain)(format!("{}{name} {takes}", self.prefix))
    }

    /// All fields, in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.map.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A field of any type, unless it is absent or null.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A string field.
    ///
    /// # Errors
    ///
    /// When the field is not a string.
    pub fn text(&self, name: &str) -> Result<Option<&str>, E> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a string")),
        }
    }

    /// A string field that must be present and not blank. Surrounding white space is removed.
    ///
    /// # Errors
    ///
    /// When the field is absent, blank or not a string.
    pub fn required_text(&self, name: &str) -> Result<&str, E> {
        let text = self.text(name)?.map_or("", str::trim);
        if text.is_empty() { Err(self.wrong(name, "must be a string that is not empty")) } else { Ok(text) }
    }

    /// A whole number within `range`. `3.0` counts as a whole number.
    ///
    /// # Errors
    ///
    /// When the number is out of range, or the field is not a whole number.
    pub fn integer(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        // The cast loses nothing: the number is whole and at most 1e9.
        let small =
            |number: f64| (number.fract() == 0.0 && (0.0..=1e9).contains(&number)).then_some(number as u64);
        let whole = value.as_u64().or_else(|| value.as_f64().and_then(small));
        match whole.and_then(|whole| u32::try_from(whole).ok()) {
            Some(whole) if range.contains(&whole) => Ok(Some(whole)),
            _ => {
                let takes = format!("must be a whole number from {} to {}", range.start(), range.end());
                Err(self.wrong(name, &takes))
            }
        }
    }

    /// A number within `range`.
    ///
    /// # Errors
    ///
    /// When the field is not a number, or out of range.
    pub fn number(&self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (start, end) = (range.start(), range.end());
            let rule = if *end < f64::MAX {
                format!("must be a number from {start} to {end}")
            } else {
                format!("must be a number of at least {start}")
            };
            self.wrong(name, &rule)
        })
    }

    /// An amount of dollars: a number or a decimal string, at least 0.
    ///
    /// # Errors
    ///
    /// When the field is neither, or the amount is negative.
    pub fn dollars(&self, name: &str) -> Result<Option<f64>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_f64(),
        };
        let amount = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        amount.map(Some).ok_or_else(|| self.wrong(name, "must be a number or a decimal string, at least 0"))
    }

    /// What the word in a field stands for, one of `words`.
    ///
    /// # Errors
    ///
    /// When it is none of them.
    pub fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let known = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
        known.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(name, &format!("must be one of {}", words.join(", ")))
        })
    }

    /// A list of strings.
    ///
    /// # Errors
    ///
    /// When the field is not a list, or an entry is not a string.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<&str>>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.wrong(name, "must be a list of strings"))?;
        let text = |(index, entry): (usize, &'_ Value)| match entry {
            Value::String(_) => Ok(()),
            _ => Err(self.wrong(&format!("{name}[{index}]"), "must be a string")),
        };
        list.iter().enumerate().try_for_each(text)?;
        Ok(Some(list.iter().filter_map(Value::as_str).collect()))
    }

    /// A list of at most `count_max` strings, none of them blank.
    ///
    /// # Errors
    ///
    /// When the field is not such a list.
    pub fn texts(&self, name: &str, count_max: usize) -> Result<Option<Vec<&str>>, E> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let wrong = || self.wrong(name, &format!("must be a list of at most {count_max} strings"));
        let items = value.as_array().filter(|items| items.len() <= count_max).ok_or_else(wrong)?;
        let text = |item: &'_ Value| item.as_str().map(str::trim).filter(|text| !text.is_empty()).is_some();
        if !items.iter().all(text) {
            return Err(wrong());
        }
        Ok(Some(items.iter().filter_map(Value::as_str).map(str::trim).collect()))
    }

    /// A Boolean field.
    ///
    /// # Errors
    ///
    /// When the field is not a Boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, E> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.wrong(name, "must be true or false")),
        }
    }

    /// An object field.
    ///
    /// # Errors
    ///
    /// When the field is not an object.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, E> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.wrong(name, "must be an object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fields;

    #[test]
    fn nothing_is_an_empty_object() {
        for json in ["", "{}", "null", " {} "] {
            assert_eq!(Fields::parse(json.as_bytes(), "p").unwrap().members().count(), 0, "{json}");
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
            fields.word("w", &[("red", 1), ("green", 2)]).unwrap_err(),
            fields.strings("l").unwrap_err(),
            fields.strings("m").unwrap_err(),
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
        assert_eq!(fields.strings("absent"), Ok(None));
    }
}
