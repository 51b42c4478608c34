//! The `provider` object of a request.

use serde::Deserialize;
use serde_json::value::RawValue;

/// What the client prefers; absent and null fields have their defaults.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Preferences {
    /// Slugs to try first, in this order; `None` when not given.
    pub(crate) order: Option<Vec<String>>,
    /// Slugs outside of which nothing is tried.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) ignore: Vec<String>,
    pub(crate) allow_fallbacks: bool,
    pub(crate) require_parameters: bool,
    pub(crate) deny_data_collection: bool,
    pub(crate) zdr: bool,
    pub(crate) quantizations: Vec<String>,
    pub(crate) sort: Option<SortBy>,
    /// Sort endpoints of all models together.
    pub(crate) across_models: bool,
    pub(crate) max_price: MaxPrice,
    /// Output tokens per second by percentile.
    pub(crate) min_throughput: Thresholds,
    /// Seconds to first content by percentile.
    pub(crate) max_latency: Thresholds,
}

/// What endpoints are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SortBy {
    Price,
    Throughput,
    Latency,
    Exacto,
}

/// Upper limits in dollars per million tokens, `image` per image.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MaxPrice {
    pub(crate) prompt: Option<f64>,
    pub(crate) completion: Option<f64>,
    pub(crate) image: Option<f64>,
}

/// Limits for some percentiles; one number means the median.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) p50: Option<f64>,
    pub(crate) p75: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    order: Option<&'a RawValue>,
    #[serde(borrow)]
    only: Option<&'a RawValue>,
    #[serde(borrow)]
    ignore: Option<&'a RawValue>,
    #[serde(borrow)]
    allow_fallbacks: Option<&'a RawValue>,
    #[serde(borrow)]
    require_parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    data_collection: Option<&'a RawValue>,
    #[serde(borrow)]
    zdr: Option<&'a RawValue>,
    #[serde(borrow)]
    quantizations: Option<&'a RawValue>,
    #[serde(borrow)]
    sort: Option<&'a RawValue>,
    #[serde(borrow)]
    max_price: Option<&'a RawValue>,
    #[serde(borrow)]
    preferred_min_throughput: Option<&'a RawValue>,
    #[serde(borrow)]
    preferred_max_latency: Option<&'a RawValue>,
}

impl Preferences {
    /// Reads the object; the error is the name of the field that does not fit.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, &'static str> {
        let mut preferences = Self { allow_fallbacks: true, ..Self::default() };
        if matches!(json, b"" | b"{}" | b"null") {
            return Ok(preferences);
        }
        let fields: Fields<'_> = serde_json::from_slice(json).map_err(|_| "provider")?;
        // An empty list says nothing, as if it were absent.
        preferences.order =
            read::<Vec<String>>(fields.order, "provider.order")?.filter(|list| !list.is_empty());
        preferences.only = read::<Vec<String>>(fields.only, "provider.only")?.filter(|list| !list.is_empty());
        preferences.ignore = read(fields.ignore, "provider.ignore")?.unwrap_or_default();
        preferences.allow_fallbacks =
            read(fields.allow_fallbacks, "provider.allow_fallbacks")?.unwrap_or(true);
        preferences.require_parameters =
            read(fields.require_parameters, "provider.require_parameters")?.unwrap_or(false);
        preferences.deny_data_collection =
            match read::<&str>(fields.data_collection, "provider.data_collection")? {
                None | Some("allow") => false,
                Some("deny") => true,
                Some(_) => return Err("provider.data_collection"),
            };
        preferences.zdr = read(fields.zdr, "provider.zdr")?.unwrap_or(false);
        preferences.quantizations = read(fields.quantizations, "provider.quantizations")?.unwrap_or_default();
        if let Some(sort) = read::<Sort>(fields.sort, "provider.sort")? {
            (preferences.sort, preferences.across_models) = sort.into_parts()?;
        }
        preferences.max_price = max_price(fields.max_price)?;
        preferences.min_throughput =
            thresholds(fields.preferred_min_throughput, "provider.preferred_min_throughput")?;
        preferences.max_latency = thresholds(fields.preferred_max_latency, "provider.preferred_max_latency")?;
        Ok(preferences)
    }
}

fn read<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    name: &'static str,
) -> Result<Option<T>, &'static str> {
    raw.map_or(Ok(None), |raw| serde_json::from_str(raw.get()).map_err(|_| name))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Sort {
    By(SortBy),
    Detailed { by: Option<SortBy>, partition: Option<String> },
}

impl Sort {
    fn into_parts(self) -> Result<(Option<SortBy>, bool), &'static str> {
        match self {
            Sort::By(by) => Ok((Some(by), false)),
            Sort::Detailed { by, partition } => match partition.as_deref() {
                None | Some("model") => Ok((by, false)),
                Some("none") => Ok((by, true)),
                Some(_) => Err("provider.sort.partition"),
            },
        }
    }
}

/// Amounts come as numbers or as decimal strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(f64),
    Text(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Amounts {
    prompt: Option<Amount>,
    completion: Option<Amount>,
    image: Option<Amount>,
}

fn max_price(raw: Option<&RawValue>) -> Result<MaxPrice, &'static str> {
    let amounts: Amounts = read(raw, "provider.max_price")?.unwrap_or_default();
    let dollars = |amount: Option<Amount>| match amount {
        None => Ok(None),
        Some(Amount::Number(number)) => Ok(Some(number)),
        Some(Amount::Text(text)) => text.trim().parse().map(Some).map_err(|_| "provider.max_price"),
    };
    Ok(MaxPrice {
        prompt: dollars(amounts.prompt)?,
        completion: dollars(amounts.completion)?,
        image: dollars(amounts.image)?,
    })
}

fn thresholds(raw: Option<&RawValue>, name: &'static str) -> Result<Thresholds, &'static str> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        Median(f64),
        Each { p50: Option<f64>, p75: Option<f64>, p90: Option<f64>, p99: Option<f64> },
    }
    Ok(match read(raw, name)? {
        None => Thresholds::default(),
        Some(Shape::Median(p50)) => Thresholds { p50: Some(p50), ..Thresholds::default() },
        Some(Shape::Each { p50, p75, p90, p99 }) => Thresholds { p50, p75, p90, p99 },
    })
}

#[cfg(test)]
mod tests {
    use super::{MaxPrice, Preferences, SortBy, Thresholds};

    #[test]
    fn absent_and_null_fields_have_defaults() {
        let defaults = Preferences { allow_fallbacks: true, ..Preferences::default() };
        for json in ["", "{}", "null", r#"{"order":null,"sort":null,"zdr":null,"max_price":null,"new":1}"#] {
            assert_eq!(Preferences::parse(json.as_bytes()).as_ref(), Ok(&defaults), "{json}");
        }
    }

    #[test]
    fn every_field_is_read() {
        let json = r#"{"order":["a"],"only":["b"],"ignore":["c"],"allow_fallbacks":false,"require_parameters":true,
            "data_collection":"deny","zdr":true,"quantizations":["fp8"],"sort":{"by":"latency","partition":"none"},
            "max_price":{"prompt":"0.5","completion":2,"request":null},"preferred_min_throughput":50,
            "preferred_max_latency":{"p90":3.5}}"#;
        let expected = Preferences {
            order: Some(vec!["a".into()]),
            only: Some(vec!["b".into()]),
            ignore: vec!["c".into()],
            allow_fallbacks: false,
            require_parameters: true,
            deny_data_collection: true,
            zdr: true,
            quantizations: vec!["fp8".into()],
            sort: Some(SortBy::Latency),
            across_models: true,
            max_price: MaxPrice { prompt: Some(0.5), completion: Some(2.0), image: None },
            min_throughput: Thresholds { p50: Some(50.0), ..Thresholds::default() },
            max_latency: Thresholds { p90: Some(3.5), ..Thresholds::default() },
        };
        assert_eq!(Preferences::parse(json.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let cases = [
            (r#"{"order":"a"}"#, "provider.order"),
            (r#"{"sort":"speed"}"#, "provider.sort"),
            (r#"{"sort":{"by":"price","partition":"all"}}"#, "provider.sort.partition"),
            (r#"{"data_collection":"maybe"}"#, "provider.data_collection"),
            (r#"{"max_price":{"prompt":"cheap"}}"#, "provider.max_price"),
            (r#"{"allow_fallbacks":"no"}"#, "provider.allow_fallbacks"),
            ("7", "provider"),
        ];
        for (json, field) in cases {
            assert_eq!(Preferences::parse(json.as_bytes()), Err(field), "{json}");
        }
    }
}
