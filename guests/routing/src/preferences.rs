//! The `provider` object of a request.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;
use serde_json::Value;

use crate::slug::Slugs;

/// The client's preferences. Absent and null fields have their defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preferences {
    /// Slugs to try first, in this order; `None` when not given.
    pub(crate) order: Option<Slugs>,
    /// Only endpoints with these slugs are tried; `None` when not given.
    pub(crate) only: Option<Slugs>,
    pub(crate) ignore: Slugs,
    /// Whether more than the first endpoint may be tried.
    pub allow_fallbacks: bool,
    pub(crate) require_parameters: bool,
    pub(crate) deny_data_collection: bool,
    pub(crate) zdr: bool,
    /// Only models may be asked whose output may be used to train others. No endpoint can state that.
    pub(crate) enforce_distillable_text: bool,
    pub(crate) quantizations: Vec<String>,
    pub(crate) sort: Option<SortBy>,
    /// The scope of the sort; `None` when not given.
    pub(crate) partition: Option<Partition>,
    /// The client's limits for prices.
    pub max_price: MaxPrice,
    /// The smallest number of output tokens per second, by percentile.
    pub(crate) min_throughput: Thresholds,
    /// The largest number of seconds until the first content, by percentile.
    pub(crate) max_latency: Thresholds,
}

/// The criterion of the sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortBy {
    Price,
    Throughput,
    Latency,
    Exacto,
}

/// The scope of the sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partition {
    /// Each model by itself, in the client's order of models.
    Model,
    /// All models together.
    None,
}

/// Upper limits in dollars per million tokens; `image` is in dollars per image. Endpoints have no
/// prices per request or for audio, so limits for these are always met.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MaxPrice {
    /// The limit for input.
    pub prompt: Option<f64>,
    /// The limit for output.
    pub completion: Option<f64>,
    /// The limit for a generated image.
    pub image: Option<f64>,
}

impl MaxPrice {
    /// Whether the prices of input, output and an image are within the limits.
    #[must_use]
    pub fn allows(&self, input: f64, output: f64, image: f64) -> bool {
        let within = |limit: Option<f64>, price: f64| limit.is_none_or(|limit| price <= limit);
        within(self.prompt, input) && within(self.completion, output) && within(self.image, image)
    }
}

/// Limits for some percentiles. A single number is a limit for the median.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) p50: Option<f64>,
    pub(crate) p75: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
}

impl Preferences {
    /// Reads the object.
    ///
    /// # Errors
    /// The first invalid field, by its path.
    pub fn parse(json: &[u8]) -> Result<Self, Failure> {
        if matches!(json, b"" | b"{}") {
            // The usual case needs no parser.
            return Ok(Self { allow_fallbacks: true, ..Self::default() });
        }
        let fields = Fields::parse(json, "provider")?;
        // Validated but without effect here: the host passes `options` to the provider's guest.
        fields.object("options")?;
        let (sort, partition) = sort(&fields)?;
        Ok(Self {
            order: slugs(&fields, "order")?,
            only: slugs(&fields, "only")?,
            ignore: slugs(&fields, "ignore")?.unwrap_or_default(),
            allow_fallbacks: fields.flag("allow_fallbacks")?.unwrap_or(true),
            require_parameters: fields.flag("require_parameters")?.unwrap_or(false),
            deny_data_collection: fields
                .word("data_collection", &[("allow", false), ("deny", true)])?
                .unwrap_or(false),
            zdr: fields.flag("zdr")?.unwrap_or(false),
            enforce_distillable_text: fields.flag("enforce_distillable_text")?.unwrap_or(false),
            quantizations: words(&fields, "quantizations")?,
            sort,
            partition,
            max_price: max_price(&fields)?,
            min_throughput: thresholds(&fields, "preferred_min_throughput")?,
            max_latency: thresholds(&fields, "preferred_max_latency")?,
        })
    }
}

/// Reads a list of slugs. An empty list counts as absent.
fn slugs(fields: &Fields, name: &str) -> Result<Option<Slugs>, Failure> {
    Ok(fields.strings(name)?.filter(|list| !list.is_empty()).map(|list| Slugs::new(&list)))
}

fn words(fields: &Fields, name: &str) -> Result<Vec<String>, Failure> {
    Ok(fields.strings(name)?.unwrap_or_default().into_iter().map(str::to_owned).collect())
}

/// Reads `sort`: a word, or an object with the criterion and the scope.
fn sort(fields: &Fields) -> Result<(Option<SortBy>, Option<Partition>), Failure> {
    let Some(Value::Object(_)) = fields.value("sort") else { return Ok((sort_by(fields, "sort")?, None)) };
    let sort = fields.nested("sort")?;
    let partition = sort.word("partition", &[("model", Partition::Model), ("none", Partition::None)])?;
    Ok((sort_by(&sort, "by")?, partition))
}

fn sort_by(fields: &Fields, name: &str) -> Result<Option<SortBy>, Failure> {
    let words = [
        ("price", SortBy::Price),
        ("throughput", SortBy::Throughput),
        ("latency", SortBy::Latency),
        ("exacto", SortBy::Exacto),
    ];
    fields.word(name, &words)
}

fn max_price(fields: &Fields) -> Result<MaxPrice, Failure> {
    let amounts = fields.nested("max_price")?;
    amounts.dollars("audio")?;
    amounts.dollars("request")?;
    Ok(MaxPrice {
        prompt: amounts.dollars("prompt")?,
        completion: amounts.dollars("completion")?,
        image: amounts.dollars("image")?,
    })
}

fn thresholds(fields: &Fields, name: &str) -> Result<Thresholds, Failure> {
    const ANY: std::ops::RangeInclusive<f64> = 0.0..=f64::MAX;
    match fields.value(name) {
        None => Ok(Thresholds::default()),
        Some(Value::Object(_)) => {
            let each = fields.nested(name)?;
            Ok(Thresholds {
                p50: each.number("p50", ANY)?,
                p75: each.number("p75", ANY)?,
                p90: each.number("p90", ANY)?,
                p99: each.number("p99", ANY)?,
            })
        }
        Some(_) => Ok(Thresholds { p50: fields.number(name, ANY)?, ..Thresholds::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::{MaxPrice, Partition, Preferences, Slugs, SortBy, Thresholds};

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
            "data_collection":"deny","zdr":true,"enforce_distillable_text":true,"quantizations":["fp8"],
            "sort":{"by":"latency","partition":"none"},
            "max_price":{"prompt":"0.5","completion":2,"image":" 1e-1 ","audio":"1","request":null},
            "preferred_min_throughput":50,"preferred_max_latency":{"p75":2,"p90":3.5},"options":{"a":{"x":1}}}"#;
        let expected = Preferences {
            order: Some(Slugs::new(&["a"])),
            only: Some(Slugs::new(&["b"])),
            ignore: Slugs::new(&["c"]),
            allow_fallbacks: false,
            require_parameters: true,
            deny_data_collection: true,
            zdr: true,
            enforce_distillable_text: true,
            quantizations: vec!["fp8".into()],
            sort: Some(SortBy::Latency),
            partition: Some(Partition::None),
            max_price: MaxPrice { prompt: Some(0.5), completion: Some(2.0), image: Some(0.1) },
            min_throughput: Thresholds { p50: Some(50.0), ..Thresholds::default() },
            max_latency: Thresholds { p75: Some(2.0), p90: Some(3.5), ..Thresholds::default() },
        };
        assert_eq!(Preferences::parse(json.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let words = "must be one of price, throughput, latency, exacto";
        let cases = [
            (r#"{"order":"a"}"#, "provider.order must be a list of strings"),
            (r#"{"only":["a",1]}"#, "provider.only[1] must be a string"),
            (r#"{"sort":"speed"}"#, &format!("provider.sort {words}")),
            (r#"{"sort":["price","none"]}"#, &format!("provider.sort {words}")),
            (r#"{"sort":{"by":1}}"#, &format!("provider.sort.by {words}")),
            (
                r#"{"sort":{"by":"price","partition":"all"}}"#,
                "provider.sort.partition must be one of model, none",
            ),
            (r#"{"data_collection":"maybe"}"#, "provider.data_collection must be one of allow, deny"),
            (
                r#"{"max_price":{"prompt":"cheap"}}"#,
                "provider.max_price.prompt must be a number or a decimal string, at least 0",
            ),
            (
                r#"{"max_price":{"request":"nan"}}"#,
                "provider.max_price.request must be a number or a decimal string, at least 0",
            ),
            (r#"{"max_price":[]}"#, "provider.max_price must be an object"),
            (
                r#"{"preferred_max_latency":{"p90":-1}}"#,
                "provider.preferred_max_latency.p90 must be a number of at least 0",
            ),
            (
                r#"{"preferred_min_throughput":[1,2,3,4]}"#,
                "provider.preferred_min_throughput must be a number of at least 0",
            ),
            (r#"{"allow_fallbacks":"no"}"#, "provider.allow_fallbacks must be true or false"),
            (r#"{"enforce_distillable_text":1}"#, "provider.enforce_distillable_text must be true or false"),
            (r#"{"options":[]}"#, "provider.options must be an object"),
            ("7", "provider must be an object"),
        ];
        for (json, message) in cases {
            assert_eq!(Preferences::parse(json.as_bytes()).unwrap_err().message, message, "{json}");
        }
    }
}
