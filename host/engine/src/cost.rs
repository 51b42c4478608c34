//! What an answer costs. Amounts are whole pico-dollars, so sums are exact; they become decimal
//! numbers only where they are written.

use cofferdam_runtime::wire::Usage;
use cofferdam_store::Dollars;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::io::Write as _;

const PICO_PER_DOLLAR: f64 = 1e12;
const TOKENS_PER_PRICE: f64 = 1e6;

/// An amount of money in pico-dollars (1e-12 dollars).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub u64);

impl Amount {
    /// The nearest whole amount. Negative figures become zero and figures out of range the maximum.
    pub fn from_dollars(dollars: f64) -> Self {
        // A cast from a float saturates, and NaN becomes zero.
        Self((dollars * PICO_PER_DOLLAR).round() as u64)
    }

    /// The sum, at most the maximum.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        Self(self.0.saturating_sub(less.0))
    }

    /// This amount for each of `count`.
    fn times(self, count: u64) -> u64 {
        self.0.saturating_mul(count)
    }

    /// Writes the amount as a JSON number in dollars, exactly.
    pub fn write(self, out: &mut Vec<u8>) {
        let result = write!(out, "{}", Dollars::from_pico(self.0));
        debug_assert!(result.is_ok());
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Vec::new();
        self.write(&mut text);
        let text = String::from_utf8(text).map_err(S::Error::custom)?;
        RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// An amount of money by the party it is paid to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlay {
    /// Charged by this host.
    pub here: Amount,
    /// Paid by the caller to providers directly.
    pub elsewhere: Amount,
}

impl Outlay {
    /// An amount that is charged by this host.
    #[must_use]
    pub fn charged(here: Amount) -> Self {
        Self { here, elsewhere: Amount::default() }
    }

    /// The sum of both, party by party.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { here: self.here.plus(more.here), elsewhere: self.elsewhere.plus(more.elsewhere) }
    }

    /// The difference of both, party by party and at least zero.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        Self { here: self.here.minus(less.here), elsewhere: self.elsewhere.minus(less.elsewhere) }
    }

    /// What it costs the caller, here and at providers.
    pub fn everywhere(self) -> Amount {
        self.here.plus(self.elsewhere)
    }
}

/// Prices of one endpoint: per token, and for images per piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// Input that was neither read from a cache nor written to one.
    pub input: Amount,
    /// Output that is not reasoning.
    pub output: Amount,
    /// Input read from a cache. The catalog sets the price of fresh input where none is stated.
    pub cached_input: Amount,
    /// Input written to a cache. The catalog sets the price of fresh input where none is stated.
    pub cache_write: Amount,
    /// Reasoning. The catalog sets the price of output where none is stated.
    pub reasoning: Amount,
    /// One generated image.
    pub image: Amount,
}

impl Prices {
    /// Whether any price is above zero.
    pub(crate) fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

/// A price per token from dollars per million tokens.
pub fn per_token(dollars_per_million: f64) -> Amount {
    Amount::from_dollars(dollars_per_million / TOKENS_PER_PRICE)
}

/// What an answer costs, and to which party it is paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The catalog price of the input, even if it is not charged here.
    pub input: Amount,
    /// The catalog price of output, reasoning and images, even if it is not charged here.
    pub output: Amount,
    /// What is paid for input and output: the catalog price here, or, where the caller pays the
    /// provider directly, the provider's own figure, else the catalog price.
    pub paid: Outlay,
    /// What inference cost at the provider: the provider's own figure, and what the caller pays
    /// there.
    pub upstream: Option<Amount>,
}

impl Cost {
    /// What `usage` costs at `prices`. `is_byok`: the answer was made with the caller's own
    /// credential.
    pub fn of(usage: &Usage, prices: &Prices, is_byok: bool) -> Self {
        let special = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        let fresh = usage.input_tokens.saturating_sub(special);
        let plain = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        let input = [
            prices.input.times(fresh),
            prices.cached_input.times(usage.cached_tokens),
            prices.cache_write.times(usage.cache_write_tokens),
        ];
        let output = [
            prices.output.times(plain),
            prices.reasoning.times(usage.reasoning_tokens),
            prices.image.times(u64::from(usage.images)),
        ];
        let sum = |parts: [u64; 3]| Amount(parts.into_iter().fold(0, u64::saturating_add));
        let (input, output) = (sum(input), sum(output));
        let price = input.plus(output);
        let told = usage.cost_dollars.map(Amount::from_dollars);
        let (paid, upstream) = if is_byok {
            let elsewhere = told.unwrap_or(price);
            (Outlay { elsewhere, ..Outlay::default() }, Some(elsewhere))
        } else {
            (Outlay::charged(price), told)
        };
        Self { input, output, paid, upstream }
    }

    /// Adds the price of calls to the provider's own tools.
    #[must_use]
    pub fn with_calls(self, calls: Amount) -> Self {
        Self { output: self.output.plus(calls), paid: self.paid.plus(Outlay::charged(calls)), ..self }
    }

    /// The sum of both, part by part.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.plus(other.input),
            output: self.output.plus(other.output),
            paid: self.paid.plus(other.paid),
            upstream: match (self.upstream, other.upstream) {
                (Some(one), Some(more)) => Some(one.plus(more)),
                (one, more) => one.or(more),
            },
        }
    }
}

/// What an answer used, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Used {
    pub(crate) usage: Usage,
    pub(crate) cost: Cost,
}

impl Default for Used {
    fn default() -> Self {
        Self { usage: no_usage(), cost: Cost::default() }
    }
}

impl Used {
    /// The sum of both.
    pub(crate) fn plus(&self, more: &Self) -> Self {
        Self { usage: sum(&self.usage, &more.usage), cost: self.cost.plus(&more.cost) }
    }
}

/// The sum of two usages.
pub fn sum(one: &Usage, more: &Usage) -> Usage {
    Usage {
        input_tokens: one.input_tokens.saturating_add(more.input_tokens),
        cached_tokens: one.cached_tokens.saturating_add(more.cached_tokens),
        cache_write_tokens: one.cache_write_tokens.saturating_add(more.cache_write_tokens),
        output_tokens: one.output_tokens.saturating_add(more.output_tokens),
        reasoning_tokens: one.reasoning_tokens.saturating_add(more.reasoning_tokens),
        images: one.images.saturating_add(more.images),
        provider_tool_requests: one.provider_tool_requests.saturating_add(more.provider_tool_requests),
        cost_dollars: match (one.cost_dollars, more.cost_dollars) {
            (Some(one), Some(more)) => Some(one + more),
            (one, more) => one.or(more),
        },
    }
}

/// The usage of an answer whose provider gave no figures.
pub fn no_usage() -> Usage {
    Usage {
        input_tokens: 0,
        cached_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 0,
        reasoning_tokens: 0,
        images: 0,
        provider_tool_requests: 0,
        cost_dollars: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(amount: Amount) -> String {
        let mut out = Vec::new();
        amount.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn amounts_are_written_exactly() {
        for (pico, text) in [
            (0, "0"),
            (1, "0.000000000001"),
            (1_500_000_000_000, "1.5"),
            (150_000, "0.00000015"),
            (u64::MAX, "18446744.073709551615"),
        ] {
            assert_eq!(written(Amount(pico)), text);
        }
    }

    #[test]
    fn cached_and_reasoning_tokens_have_their_own_price() {
        let prices = Prices {
            input: per_token(1.0),
            output: per_token(10.0),
            cached_input: per_token(0.1),
            cache_write: per_token(1.25),
            reasoning: per_token(5.0),
            image: Amount::from_dollars(0.04),
        };
        let usage = Usage {
            input_tokens: 1000,
            cached_tokens: 400,
            cache_write_tokens: 100,
            output_tokens: 50,
            reasoning_tokens: 20,
            images: 1,
            ..no_usage()
        };
        let cost = Cost::of(&usage, &prices, false);
        assert_eq!(written(cost.input), "0.000665");
        assert_eq!(written(cost.output), "0.0404");
        assert_eq!(written(cost.paid.here), "0.041065");
    }

    #[test]
    fn what_the_caller_pays_its_provider_is_reported_and_not_charged() {
        let prices = Prices { input: per_token(1.0), output: per_token(10.0), ..Prices::default() };
        let usage = Usage { input_tokens: 1000, output_tokens: 100, ..no_usage() };
        let own = Cost::of(&usage, &prices, true);
        assert_eq!((own.paid.here, own.upstream), (Amount(0), Some(Amount::from_dollars(0.002))));
        assert_eq!((written(own.input), written(own.output)), ("0.001".to_owned(), "0.001".to_owned()));
        let told = Usage { cost_dollars: Some(0.5), ..usage };
        assert_eq!(Cost::of(&told, &prices, true).paid.elsewhere, Amount::from_dollars(0.5));
        let ours = Cost::of(&told, &prices, false);
        assert_eq!(
            (ours.paid.here, ours.upstream),
            (Amount::from_dollars(0.002), Some(Amount::from_dollars(0.5)))
        );
        let both = own.plus(&ours);
        assert_eq!(
            (both.paid.here, both.paid.everywhere()),
            (Amount::from_dollars(0.002), Amount::from_dollars(0.004))
        );
    }

    #[test]
    fn figures_out_of_range_saturate() {
        assert_eq!(Amount::from_dollars(f64::NAN), Amount(0));
        assert_eq!(Amount::from_dollars(-3.0), Amount(0));
        assert_eq!(Amount::from_dollars(1e300), Amount(u64::MAX));
    }
}
