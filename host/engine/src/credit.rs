//! What a request may cost, estimated before it is dispatched, and the answer to a caller that may not spend it.

use crate::catalog::Endpoint;
use crate::cost::Amount;
use crate::refusal::Refusal;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{Dollars, Refused, UsageDay, Window};
use serde_json::{Value, json};
use std::sync::Arc;

/// Tokens of output that are reckoned with where neither the request nor the endpoint has a limit.
const OUTPUT_TOKENS: u64 = 8_192;

/// A turn that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// Where it may be sent.
    pub(crate) endpoints: &'a [Arc<Endpoint>],
    /// Places of those that the caller pays itself.
    pub(crate) byok: &'a [usize],
    pub(crate) input_tokens: u32,
    /// The most it may have by the request.
    pub(crate) max_output: Option<u32>,
}

impl Turn<'_> {
    /// The most that is charged for it, at the dearest endpoint: its input, all the output it may have, and one image
    /// where these have a price. Nothing is charged where the caller pays the provider itself.
    pub(crate) fn estimate(&self) -> Amount {
        let charged = self.endpoints.iter().enumerate().filter(|(place, _)| !self.byok.contains(place));
        charged.map(|(_, endpoint)| self.at(endpoint)).max().unwrap_or_default()
    }

    fn at(&self, endpoint: &Endpoint) -> Amount {
        let known = (endpoint.candidate.max_output > 0).then_some(endpoint.candidate.max_output);
        let output = match (self.max_output, known) {
            (Some(wished), Some(possible)) => wished.min(possible).into(),
            (Some(output), None) | (None, Some(output)) => output.into(),
            (None, None) => OUTPUT_TOKENS,
        };
        let prices = &endpoint.prices;
        let input = prices.input.max(prices.cache_write).0.saturating_mul(self.input_tokens.into());
        let output = prices.output.max(prices.reasoning).0.saturating_mul(output);
        Amount(input.saturating_add(output)).plus(prices.image)
    }
}

/// 402 with what is used up and when there is more; 503 when the ledger takes no more requests.
pub(crate) fn refusal(refused: Refused) -> Refusal {
    let (message, limit) = match refused {
        Refused::NoRoom => return Refusal::saturated(),
        Refused::Credit => (
            "Insufficient credits: this host refused the request, because the credit of its workspace is used up. \
             Its operator adds some with `cofferdam credits add`."
                .to_owned(),
            json!({ "limit": "credit" }),
        ),
        Refused::KeyLimit { window, limit_pico, resets_at_ms } => {
            (used_up(window, limit_pico, resets_at_ms), key_limit(window, limit_pico, resets_at_ms))
        }
    };
    Refusal { metadata: Box::new(limit), ..Refusal::new(402, ErrorKind::PaymentRequired, message) }
}

fn used_up(window: Window, limit_pico: u64, resets_at_ms: Option<u64>) -> String {
    let limit = Dollars::from_pico(limit_pico);
    let span = match window {
        Window::Day => " a day",
        Window::Week => " a week",
        Window::Month => " a month",
        Window::Total => "",
    };
    let more = resets_at_ms.map_or_else(
        || "Use another key, or have its limit raised.".to_owned(),
        |ms| format!("It may spend again from {} (UTC) on, or with a higher limit.", UsageDay::of_ms(ms)),
    );
    format!(
        "Insufficient credits: this host refused the request, because the key has spent its limit of \
         ${limit}{span}. {more}"
    )
}

fn key_limit(window: Window, limit_pico: u64, resets_at_ms: Option<u64>) -> Value {
    // Windows end at midnight.
    let resets_at = resets_at_ms.map(|ms| format!("{}T00:00:00.000Z", UsageDay::of_ms(ms)));
    json!({ "limit": window.as_str(), "limit_usd": Amount(limit_pico), "resets_at": resets_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_refused_what_is_used_up_and_when_there_is_more() {
        let credit = refusal(Refused::Credit);
        assert_eq!((credit.status, credit.kind), (402, ErrorKind::PaymentRequired));
        assert!(credit.message.starts_with("Insufficient credits: this host "), "{}", credit.message);
        assert!(credit.message.contains("cofferdam credits add"));
        assert_eq!(*credit.metadata, json!({"limit": "credit"}));
        let resets_at_ms = Some(1_769_904_000_000);
        let day =
            refusal(Refused::KeyLimit { window: Window::Day, limit_pico: 2_500_000_000_000, resets_at_ms });
        assert!(day.message.contains("$2.5 a day. It may spend again from 2026-02-01 "), "{}", day.message);
        assert_eq!(
            *day.metadata,
            json!({"limit": "day", "limit_usd": 2.5, "resets_at": "2026-02-01T00:00:00.000Z"})
        );
        let total = Refused::KeyLimit { window: Window::Total, limit_pico: 0, resets_at_ms: None };
        assert!(refusal(total).message.contains("its limit of $0. Use another key"));
        assert_eq!(refusal(Refused::NoRoom).status, 503);
    }
}
