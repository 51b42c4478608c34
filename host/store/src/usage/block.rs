//! Encoding of usage rows in the log. Many rows are in one value, because the engine's cost per
//! value hardly depends on its length.
//!
//! ```text
//! 3 | number of rows | row ...
//! row = request id | at_ms | workspace (16) | key (12) | flags (1) | model | provider | seven counts
//! ```
//!
//! Numbers have seven bits per byte, the lowest first; texts follow their length.

use crate::ids::WorkspaceId;
use crate::token::KeyId;
use crate::usage::{UsageKind, UsageOutcome, UsageRow};

const BLOCK_VERSION: u8 = 3;
/// Largest number of rows in one value, about twelve kilobytes.
pub(crate) const ROWS_MAX: usize = 128;

const EMBEDDINGS: u8 = 1;
const STREAMED: u8 = 1 << 1;
const OUTCOME_SHIFT: u8 = 2;
const OUTCOME_MASK: u8 = 0b111;
const ESTIMATED: u8 = 1 << 7;
const OUTCOMES: [UsageOutcome; 5] = [
    UsageOutcome::Completed,
    UsageOutcome::Incomplete,
    UsageOutcome::Failed,
    UsageOutcome::Cancelled,
    UsageOutcome::Interrupted,
];

/// Encodes rows as one value.
pub(crate) fn encode(rows: &[UsageRow]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + rows.len() * 112);
    out.push(BLOCK_VERSION);
    put_number(&mut out, rows.len() as u64);
    for row in rows {
        put(&mut out, row);
    }
    out
}

/// The rows of a value, in the order in which they were written; `None` when it cannot be decoded.
pub(crate) fn decode(value: &[u8]) -> Option<Vec<UsageRow>> {
    let mut rest = block(value)?;
    let count = rest.number()?;
    // A row takes far more than a byte. The capacity is bounded by the value's length, not by its
    // count field.
    let mut rows = Vec::with_capacity(usize::try_from(count).ok()?.min(value.len() / 32));
    for _ in 0..count {
        rows.push(rest.row()?);
    }
    rest.0.is_empty().then_some(rows)
}

/// The number of rows in the value's count field. Trustworthy only once the digest over the value
/// was verified.
pub(crate) fn count(value: &[u8]) -> usize {
    let count = block(value).and_then(|mut rest| usize::try_from(rest.number()?).ok());
    count.unwrap_or_default()
}

/// The content of a value; `None` for other bytes.
fn block(value: &[u8]) -> Option<Rest<'_>> {
    value.strip_prefix(&[BLOCK_VERSION]).map(Rest)
}

fn put(out: &mut Vec<u8>, row: &UsageRow) {
    // Names every field, so that a new field cannot be forgotten here.
    let UsageRow {
        request_id,
        at_ms,
        workspace,
        key,
        kind,
        model,
        provider,
        input_tokens,
        cached_tokens,
        output_tokens,
        reasoning_tokens,
        cost_pico,
        byok_pico,
        attempts,
        outcome,
        streamed,
        estimated,
    } = row;
    put_text(out, request_id);
    put_number(out, *at_ms);
    out.extend_from_slice(workspace.as_bytes());
    out.extend_from_slice(key.as_bytes());
    let kind = if *kind == UsageKind::Embeddings { EMBEDDINGS } else { 0 };
    let streamed = if *streamed { STREAMED } else { 0 };
    let estimated = if *estimated { ESTIMATED } else { 0 };
    let outcome = match outcome {
        UsageOutcome::Completed => 0,
        UsageOutcome::Incomplete => 1,
        UsageOutcome::Failed => 2,
        UsageOutcome::Cancelled => 3,
        UsageOutcome::Interrupted => 4,
    };
    out.push(kind | streamed | outcome << OUTCOME_SHIFT | estimated);
    put_text(out, model);
    put_text(out, provider);
    for count in [input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost_pico, byok_pico] {
        put_number(out, *count);
    }
    put_number(out, u64::from(*attempts));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The bytes of a value that were not decoded yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn row(&mut self) -> Option<UsageRow> {
        let request_id = self.text()?;
        let at_ms = self.number()?;
        let workspace = WorkspaceId::from_bytes(*self.chunk()?);
        let key: KeyId = std::str::from_utf8(self.chunk::<12>()?).ok()?.parse().ok()?;
        let [flags] = *self.chunk()?;
        Some(UsageRow {
            request_id,
            at_ms,
            workspace,
            key,
            kind: if flags & EMBEDDINGS == 0 { UsageKind::Responses } else { UsageKind::Embeddings },
            outcome: *OUTCOMES.get(usize::from(flags >> OUTCOME_SHIFT & OUTCOME_MASK))?,
            streamed: flags & STREAMED != 0,
            estimated: flags & ESTIMATED != 0,
            model: self.text()?,
            provider: self.text()?,
            input_tokens: self.number()?,
            cached_tokens: self.number()?,
            output_tokens: self.number()?,
            reasoning_tokens: self.number()?,
            cost_pico: self.number()?,
            byok_pico: self.number()?,
            attempts: u32::try_from(self.number()?).ok()?,
        })
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for place in 0..10 {
            let [byte] = *self.chunk()?;
            let part = u64::from(byte & 0x7f);
            // Nine bytes carry 63 bits, so the tenth may only have one.
            if place == 9 && part > 1 {
                return None;
            }
            number |= part << (place * 7);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        "\\PC{0,40}"
    }

    fn row() -> impl Strategy<Value = UsageRow> {
        let names = (text(), text(), text(), "[0-9A-Za-z]{12}");
        let counts = any::<([u64; 7], u32)>();
        (names, counts, any::<[u8; 16]>(), 0..OUTCOMES.len(), any::<(bool, bool, bool)>()).prop_map(
            |(
                (request_id, model, provider, key),
                (counts, attempts),
                workspace,
                outcome,
                (streamed, embeds, estimated),
            )| UsageRow {
                request_id,
                at_ms: counts[0],
                workspace: WorkspaceId::from_bytes(workspace),
                key: key.parse().unwrap(),
                kind: if embeds { UsageKind::Embeddings } else { UsageKind::Responses },
                model,
                provider,
                input_tokens: counts[1],
                cached_tokens: counts[2],
                output_tokens: counts[3],
                reasoning_tokens: counts[4],
                cost_pico: counts[5],
                byok_pico: counts[6],
                attempts,
                outcome: OUTCOMES[outcome],
                streamed,
                estimated,
            },
        )
    }

    proptest! {
        #[test]
        fn encoded_rows_decode_and_other_lengths_do_not(rows in proptest::collection::vec(row(), 0..5)) {
            let value = encode(&rows);
            prop_assert_eq!(count(&value), rows.len());
            prop_assert_eq!(decode(&value).unwrap(), rows);
            for cut in 0..value.len() {
                prop_assert_eq!(decode(&value[..cut]), None, "cut at {}", cut);
            }
            prop_assert_eq!(decode(&[value.as_slice(), &[0]].concat()), None);
        }

        #[test]
        fn foreign_bytes_do_not_panic(bytes: Vec<u8>) {
            let value = [[BLOCK_VERSION].as_slice(), &bytes].concat();
            count(&value);
            decode(&value);
            decode(&bytes);
        }
    }
}
