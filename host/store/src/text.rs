//! Serde helpers for values that are written as one word, or as a list of words, in JSON rows.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer, T: Display>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The parser's own error text is dropped: it could quote the content of the row.
    text.parse().map_err(|_| serde::de::Error::custom("not a valid value of this field"))
}

/// [`serialize`] and [`deserialize`] for a list of values.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    pub(crate) fn serialize<S: Serializer, T: Display>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(ToString::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: FromStr>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let values: Result<Vec<T>, T::Err> = texts.iter().map(|text| text.parse()).collect();
        values.map_err(|_| serde::de::Error::custom("not a valid value of this field"))
    }
}

/// [`serialize`] and [`deserialize`] for an optional value.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    pub(crate) fn serialize<S: Serializer, T: Display>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: FromStr>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| serde::de::Error::custom("not a valid value of this field"))
    }
}
