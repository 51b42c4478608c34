//! Formats amounts of money for the output of commands.

use cofferdam_store::Dollars;
use serde_json::Value;

/// Dollars as a JSON number, exact to the pico-dollar.
pub(super) fn number(pico: u64) -> Value {
    Dollars::from_pico(pico).to_string().parse().unwrap_or(Value::Null)
}

/// Dollars that may be negative.
pub(super) fn signed(pico: i128) -> String {
    let sign = if pico < 0 { "-" } else { "" };
    let amount = u64::try_from(pico.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", Dollars::from_pico(amount))
}

/// Dollars in a table, rounded to a hundredth of a cent.
pub(super) fn rounded(pico: u64) -> String {
    const UNIT: u64 = 100_000_000;
    let units = pico / UNIT + u64::from(pico % UNIT >= UNIT / 2);
    format!("{}.{:04}", units / 10_000, units % 10_000)
}

#[cfg(test)]
mod tests {
    use super::{number, rounded, signed};

    #[test]
    fn amounts_are_formatted_for_json_and_for_tables() {
        assert_eq!(number(150_000).to_string(), "1.5e-7");
        assert_eq!(number(12_500_000_000_000).to_string(), "12.5");
        assert_eq!((signed(-1), signed(2_000_000_000_000)), ("-0.000000000001".to_owned(), "2".to_owned()));
        for (pico, text) in [(0, "0.0000"), (49_999_999, "0.0000"), (50_000_000, "0.0001")] {
            assert_eq!(rounded(pico), text);
        }
        assert_eq!(rounded(u64::MAX), "18446744.0737");
    }
}
