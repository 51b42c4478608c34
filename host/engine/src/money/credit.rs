//! The most that a request may cost, estimated before it is sent, and the refusals for a caller
//! that may not spend that much.

use crate::catalog::Endpoint;
use crate::cost::Amount;
use crate::refusal::Refusal;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{Dollars, Error, ReservationRefused, SpendWindow, UsageDay};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The output assumed where neither the request nor the endpoint has a limit: the model's context,
/// up to the first value; the second value where the context is unknown.
const OUTPUT_TOKENS_OF_CONTEXT: u64 = 65_536;
const OUTPUT_TOKENS: u64 = 8_192;
/// After how many seconds a client may repeat a request that was refused only because of the
/// reservations of others.
const BUSY_S: u64 = 1;

/// How long a request of a prepaid workspace waits for its intent to be durable.
pub(crate) const INTENT_TIME_MAX: Duration = Duration::from_secs(10);

/// A turn that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct TurnEstimate<'a> {
    /// The endpoints it may be sent to.
    pub(crate) endpoints: &'a [Arc<Endpoint>],
    /// Indexes of the endpoints where the caller pays the provider directly.
    pub(crate) byok: &'a [usize],
    /// Indexes of those that it is sent to; `None` for all.
    pub(crate) places: Option<&'a [usize]>,
    pub(crate) tokens: TurnTokens,
}

/// The most tokens that one turn can have, at any endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnTokens {
    /// An upper bound of the input tokens, by the request alone. The context of a model may be
    /// smaller.
    pub(crate) input: u64,
    /// How many inputs these are. Each may be as long as the context: those of embeddings are read one by one.
    pub(crate) inputs: usize,
    /// The output limit of the request.
    pub(crate) output: Option<u32>,
    /// Reasoning tokens that a dialect may allow the model in addition to the output.
    pub(crate) reasoning: u64,
}

impl TurnTokens {
    /// The most input at `endpoint`.
    pub(crate) fn input_at(self, endpoint: &Endpoint) -> u64 {
        self.within_contexts(self.input, endpoint)
    }

    /// A number of tokens of all inputs, at most what fits the contexts of the endpoint's model.
    pub(crate) fn within_contexts(self, tokens: u64, endpoint: &Endpoint) -> u64 {
        let inputs = self.inputs.max(1) as u64;
        let context = known(endpoint.candidate.context_length);
        context.map_or(tokens, |context| tokens.min(context.saturating_mul(inputs)))
    }

    /// The most output at `endpoint`, with reasoning in addition to it.
    fn output_and_reasoning_at(self, endpoint: &Endpoint) -> u64 {
        let all = self.output_at(endpoint).saturating_add(self.reasoning);
        known(endpoint.candidate.max_output).map_or(all, |possible| all.min(possible))
    }

    /// The most output at `endpoint`.
    pub(crate) fn output_at(self, endpoint: &Endpoint) -> u64 {
        let possible = known(endpoint.candidate.max_output);
        match (self.output.map(u64::from), possible) {
            (Some(wished), Some(possible)) => wished.min(possible),
            (Some(output), None) | (None, Some(output)) => output,
            (None, None) => {
                let context = known(endpoint.candidate.context_length);
                context.map_or(OUTPUT_TOKENS, |context| context.min(OUTPUT_TOKENS_OF_CONTEXT))
            }
        }
    }
}

/// A limit of an endpoint. Zero means that the limit is unknown.
fn known(limit: u32) -> Option<u64> {
    (limit > 0).then(|| u64::from(limit))
}

impl TurnEstimate<'_> {
    /// The most that is charged for the turn, at the dearest endpoint: all input and output it may
    /// have, and one image where images have a price. Endpoints where the caller pays the provider
    /// directly count nothing.
    pub(crate) fn estimate(&self) -> Amount {
        let tried = self.endpoints.iter().enumerate().filter(|(place, _)| self.is_tried(*place));
        let charged = tried.filter(|(place, _)| !self.byok.contains(place));
        charged.map(|(_, endpoint)| self.at(endpoint)).max().unwrap_or_default()
    }

    fn is_tried(&self, place: usize) -> bool {
        self.places.is_none_or(|places| places.contains(&place))
    }

    fn at(&self, endpoint: &Endpoint) -> Amount {
        let prices = &endpoint.prices;
        let input_price = prices.input.max(prices.cache_write).max(prices.cached_input);
        let input = input_price.0.saturating_mul(self.tokens.input_at(endpoint));
        let output = self.tokens.output_and_reasoning_at(endpoint);
        let output = prices.output.max(prices.reasoning).0.saturating_mul(output);
        Amount(input.saturating_add(output)).plus(prices.image)
    }
}

/// The result of writing an intent, or of waiting for it too long.
///
/// # Errors
/// 503 when the intent is not known to be durable.
pub(crate) fn written<L>(intent: Result<Result<(), Error>, L>) -> Result<(), Refusal> {
    match intent {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            tracing::error!(%error, "the intent of a request could not be written");
            Err(Refusal::saturated())
        }
        Err(_late) => Err(Refusal::saturated()),
    }
}

/// 402 with the limit that is used up and the time when it is reset, or 503 when the ledger has no
/// room for another reservation.
pub(crate) fn refusal(refused: ReservationRefused) -> Refusal {
    let (message, limit, is_busy) = match refused {
        ReservationRefused::NoRoom | ReservationRefused::Interrupted => return Refusal::saturated(),
        ReservationRefused::Credit { is_busy } => {
            let message = if is_busy { too_little("the credit of its workspace") } else { no_credit() };
            (message, json!({ "limit": "credit" }), is_busy)
        }
        ReservationRefused::KeyLimit { window, limit_pico, resets_at_ms, is_busy } => {
            let message = if is_busy {
                too_little(&format!(
                    "the limit of its key, ${}{},",
                    Dollars::from_pico(limit_pico),
                    span(window)
                ))
            } else {
                used_up(window, limit_pico, resets_at_ms)
            };
            (message, key_limit(window, limit_pico, resets_at_ms), is_busy)
        }
    };
    Refusal {
        metadata: Box::new(limit),
        retry_after_s: is_busy.then_some(BUSY_S),
        ..Refusal::new(402, ErrorKind::PaymentRequired, message)
    }
}

fn no_credit() -> String {
    "Insufficient credits: this host refused the request, because the credit of its workspace is used up. Its operator \
     adds some with `cofferdam credits add`."
        .to_owned()
}

fn too_little(limit: &str) -> String {
    format!(
        "Insufficient credits: this host refused the request, because what is left of {limit} does not cover the most \
         that the request can cost, and other requests run on it. Send it again when they have ended, or with a lower \
         max_output_tokens."
    )
}

fn span(window: SpendWindow) -> &'static str {
    match window {
        SpendWindow::Day => " a day",
        SpendWindow::Week => " a week",
        SpendWindow::Month => " a month",
        SpendWindow::Total => "",
    }
}

fn used_up(window: SpendWindow, limit_pico: u64, resets_at_ms: Option<u64>) -> String {
    let limit = Dollars::from_pico(limit_pico);
    let span = span(window);
    let more = resets_at_ms.map_or_else(
        || "Use another key, or have its limit raised.".to_owned(),
        |ms| format!("It may spend again from {} (UTC) on, or with a higher limit.", UsageDay::of_ms(ms)),
    );
    format!(
        "Insufficient credits: this host refused the request, because the key has spent its limit of \
         ${limit}{span}. {more}"
    )
}

fn key_limit(window: SpendWindow, limit_pico: u64, resets_at_ms: Option<u64>) -> Value {
    // Windows end at midnight UTC.
    let resets_at = resets_at_ms.map(|ms| format!("{}T00:00:00.000Z", UsageDay::of_ms(ms)));
    json!({ "limit": window.as_str(), "limit_usd": Amount(limit_pico), "resets_at": resets_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_limit_that_is_used_up_and_when_it_resets() {
        let credit = refusal(ReservationRefused::Credit { is_busy: false });
        assert_eq!((credit.status, credit.kind), (402, ErrorKind::PaymentRequired));
        assert!(credit.message.starts_with("Insufficient credits: this host "), "{}", credit.message);
        assert!(credit.message.contains("cofferdam credits add"));
        assert_eq!((credit.retry_after_s, *credit.metadata), (None, json!({"limit": "credit"})));
        let busy = refusal(ReservationRefused::Credit { is_busy: true });
        assert_eq!(
            (busy.status, busy.retry_after_s, *busy.metadata),
            (402, Some(1), json!({"limit": "credit"}))
        );
        assert!(
            busy.message.contains("left of the credit of its workspace does not cover"),
            "{}",
            busy.message
        );
        let resets_at_ms = Some(1_769_904_000_000);
        let limit_pico = 2_500_000_000_000;
        let key = |is_busy| ReservationRefused::KeyLimit {
            window: SpendWindow::Day,
            limit_pico,
            resets_at_ms,
            is_busy,
        };
        let busy = refusal(key(true));
        assert!(
            busy.message.contains("the limit of its key, $2.5 a day, does not cover"),
            "{}",
            busy.message
        );
        let day = refusal(key(false));
        assert_eq!((busy.retry_after_s, &busy.metadata), (Some(1), &day.metadata));
        assert!(day.message.contains("$2.5 a day. It may spend again from 2026-02-01 "), "{}", day.message);
        assert_eq!(
            *day.metadata,
            json!({"limit": "day", "limit_usd": 2.5, "resets_at": "2026-02-01T00:00:00.000Z"})
        );
        let window = SpendWindow::Total;
        let total =
            ReservationRefused::KeyLimit { window, limit_pico: 0, resets_at_ms: None, is_busy: false };
        assert!(refusal(total).message.contains("its limit of $0. Use another key"));
        assert_eq!(refusal(ReservationRefused::NoRoom).status, 503);
    }
}
