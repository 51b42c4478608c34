//! Amounts of money as people write them. Internally they are whole pico-dollars, so nothing is
//! rounded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Digits after the decimal point in a whole number of pico-dollars.
const PLACES: usize = 12;
const PICO_PER_DOLLAR: u64 = 1_000_000_000_000;
/// Longest text that is parsed as an amount.
const CHARS_MAX: usize = 64;

/// An amount of money from 0 to 18,446,744 dollars, exact to a pico-dollar (10⁻¹² dollar).
///
/// Parsed and printed as a decimal number of dollars, also in JSON, where it is a string.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Dollars(u64);

/// Why a text is not an amount of money.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DollarsError {
    /// The text is not a decimal number of zero or more.
    #[error("an amount is a number of dollars such as `12.50`")]
    NotANumber,
    /// The number has more than twelve digits after the decimal point.
    #[error("an amount has at most 12 digits after the point")]
    TooFine,
    /// The amount exceeds what 64 bits of pico-dollars can hold.
    #[error("an amount is at most 18446744 dollars")]
    TooMuch,
}

impl Dollars {
    /// The amount of `pico` pico-dollars.
    pub const fn from_pico(pico: u64) -> Dollars {
        Dollars(pico)
    }

    /// The amount in pico-dollars.
    pub const fn pico(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Dollars {
    /// Prints the exact amount without unnecessary zeros: `12.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / PICO_PER_DOLLAR, self.0 % PICO_PER_DOLLAR);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let rest = format!("{rest:0PLACES$}");
        write!(f, "{whole}.{}", rest.trim_end_matches('0'))
    }
}

impl FromStr for Dollars {
    type Err = DollarsError;

    /// Parses a decimal number with an optional exponent: the syntax of a JSON number that is not
    /// negative, but leading zeros are allowed.
    fn from_str(text: &str) -> Result<Dollars, DollarsError> {
        if text.len() > CHARS_MAX {
            return Err(DollarsError::NotANumber);
        }
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => {
                (number, exponent.parse::<i32>().map_err(|_| DollarsError::NotANumber)?)
            }
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) {
            return Err(DollarsError::NotANumber);
        }
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Dollars(0));
        }
        let kept = digits.trim_end_matches('0');
        // The amount in pico-dollars is `kept` followed by this many zeros.
        let zeros =
            i64::from(exponent) + PLACES as i64 - fraction.len() as i64 + (digits.len() - kept.len()) as i64;
        let zeros = u32::try_from(zeros).map_err(|_| DollarsError::TooFine)?;
        let pico = kept.parse::<u64>().ok().zip(10_u64.checked_pow(zeros));
        let pico = pico.and_then(|(kept, scale)| kept.checked_mul(scale));
        pico.map(Dollars).ok_or(DollarsError::TooMuch)
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dollars, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("0.0", Ok(0)),
            ("12.50", Ok(12_500_000_000_000)),
            ("0.1", Ok(100_000_000_000)),
            ("0.000000000001", Ok(1)),
            ("0.0000000000010", Ok(1)),
            ("1e-12", Ok(1)),
            ("2.5E1", Ok(25_000_000_000_000)),
            ("0e99", Ok(0)),
            ("18446744.073709551615", Ok(u64::MAX)),
            ("18446744.073709551616", Err(DollarsError::TooMuch)),
            ("1e9", Err(DollarsError::TooMuch)),
            ("0.0000000000001", Err(DollarsError::TooFine)),
            ("1e-13", Err(DollarsError::TooFine)),
            ("", Err(DollarsError::NotANumber)),
            (".5", Err(DollarsError::NotANumber)),
            ("5.", Err(DollarsError::NotANumber)),
            ("-1", Err(DollarsError::NotANumber)),
            ("+1", Err(DollarsError::NotANumber)),
            ("1,000", Err(DollarsError::NotANumber)),
            ("$5", Err(DollarsError::NotANumber)),
            ("NaN", Err(DollarsError::NotANumber)),
            ("1e", Err(DollarsError::NotANumber)),
            ("1e1e1", Err(DollarsError::NotANumber)),
        ] {
            assert_eq!(text.parse::<Dollars>().map(Dollars::pico), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_amounts_parse_to_the_same_amount(pico: u64) {
            let amount = Dollars::from_pico(pico);
            prop_assert_eq!(amount.to_string().parse::<Dollars>().unwrap(), amount);
        }

        #[test]
        fn foreign_text_does_not_panic(text in "[0-9eE.+\\-]{0,70}") {
            if let Ok(amount) = text.parse::<Dollars>() {
                prop_assert_eq!(amount.to_string().parse::<Dollars>().unwrap(), amount);
            }
        }
    }
}
