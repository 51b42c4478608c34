//! How usage rows lie in the log: many in one value, because what a row costs the engine is mostly the same
//! whatever its length.
//!
//! ```text
//! 2 | number of rows | row ...
//! row = request id | at_ms | workspace (16) | key (12) | flags (1) | model | provider | five counts
//! ```
//!
//! Numbers are written seven bits a byte, the lowest first, and texts behind their length. A value that begins
//! with 1 is one row in JSON, as earlier versions wrote them.

use crate::ids::WorkspaceId;
use crate::rows;
use crate::token::KeyId;
use crate::usage::{UsageKind, UsageOutcome, UsageRow};

const BLOCK_VERSION: u8 = 2;
/// Rows in one value: some twelve kilobytes.
pub(crate) const ROWS_MAX: usize = 128;

const EMBEDDINGS: u8 = 1;
const STREAMED: u8 = 1 << 1;
const OUTCOME_SHIFT: u8 = 2;
const OUTCOMES: [UsageOutcome; 4] =
    [UsageOutcome::Completed, UsageOutcome::Incomplete, UsageOutcome::Failed, UsageOutcome::Cancelled];

/// One value that holds these rows.
pub(crate) fn encode(rows: &[UsageRow]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + rows.len() * 112);
    out.push(BLOCK_VERSION);
    put_number(&mut out, rows.len() as u64);
    for row in rows {
        put(&mut out, row);
    }
    out
}

/// The rows of a value, in the order in which they were written; `None` for anything that is none.
pub(crate) fn decode(value: &[u8]) -> Option<Vec<UsageRow>> {
    let Some(rest) = value.strip_prefix(&[BLOCK_VERSION]) else {
        return Some(vec![rows::decode_body(value)?]);
    };
    let mut rest = Rest(rest);
    let count = rest.number()?;
    // Each takes far more than a byte: nothing is set aside for rows that are not there.
    let mut rows = Vec::with_capacity(usize::try_from(count).ok()?.min(value.len() / 32));
    for _ in 0..count {
        rows.push(rest.row()?);
    }
    rest.0.is_empty().then_some(rows)
}

/// How many rows a value says it holds. To be believed once the digest over the value holds.
pub(crate) fn count(value: &[u8]) -> usize {
    let Some(rest) = value.strip_prefix(&[BLOCK_VERSION]) else { return 1 };
    Rest(rest).number().and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

fn put(out: &mut Vec<u8>, row: &UsageRow) {
    // Everything by name, so that a field that is added cannot be forgotten here.
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
        outcome,
        streamed,
    } = row;
    put_text(out, request_id);
    put_number(out, *at_ms);
    out.extend_from_slice(workspace.as_bytes());
    out.extend_from_slice(key.as_bytes());
    let kind = if *kind == UsageKind::Embeddings { EMBEDDINGS } else { 0 };
    let streamed = if *streamed { STREAMED } else { 0 };
    let outcome = match outcome {
        UsageOutcome::Completed => 0,
        UsageOutcome::Incomplete => 1,
        UsageOutcome::Failed => 2,
        UsageOutcome::Cancelled => 3,
    };
    out.push(kind | streamed | outcome << OUTCOME_SHIFT);
    put_text(out, model);
    put_text(out, provider);
    for count in [input_tokens, cached_tokens, output_tokens, reasoning_tokens, cost_pico] {
        put_number(out, *count);
    }
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

/// What is still to be read of a value.
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
            outcome: *OUTCOMES.get(usize::from(flags >> OUTCOME_SHIFT))?,
            streamed: flags & STREAMED != 0,
            model: self.text()?,
            provider: self.text()?,
            input_tokens: self.number()?,
            cached_tokens: self.number()?,
            output_tokens: self.number()?,
            reasoning_tokens: self.number()?,
            cost_pico: self.number()?,
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
            // The tenth byte has room for one bit.
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
        let counts = any::<[u64; 6]>();
        (names, counts, any::<[u8; 16]>(), 0..OUTCOMES.len(), any::<(bool, bool)>()).prop_map(
            |((request_id, model, provider, key), counts, workspace, outcome, (streamed, embeds))| UsageRow {
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
                outcome: OUTCOMES[outcome],
                streamed,
            },
        )
    }

    proptest! {
        #[test]
        fn rows_read_back_and_nothing_shorter_or_longer_does(rows in proptest::collection::vec(row(), 0..5)) {
            let value = encode(&rows);
            prop_assert_eq!(count(&value), rows.len());
            prop_assert_eq!(decode(&value).unwrap(), rows);
            for cut in 0..value.len() {
                prop_assert_eq!(decode(&value[..cut]), None, "cut at {}", cut);
            }
            prop_assert_eq!(decode(&[value.as_slice(), &[0]].concat()), None);
        }

        #[test]
        fn a_row_of_an_earlier_version_reads_back(row in row()) {
            let value = rows::encode_body(&row);
            prop_assert_eq!(count(&value), 1);
            prop_assert_eq!(decode(&value).unwrap(), [row]);
        }

        #[test]
        fn foreign_bytes_do_no_harm(bytes: Vec<u8>) {
            let value = [[BLOCK_VERSION].as_slice(), &bytes].concat();
            count(&value);
            decode(&value);
            decode(&bytes);
        }
    }

    #[test]
    fn a_row_of_an_earlier_version_is_what_it_was() {
        let value = b"\x01{\"request_id\":\"resp_1\",\"at_ms\":5,\"workspace\":\
            \"67e55044-10b1-426f-9247-bb680e5fe0c8\",\"key\":\"abcdefghijkl\",\"kind\":\"responses\",\"model\":\"a/b\",\
            \"provider\":\"p\",\"input_tokens\":1,\"cached_tokens\":2,\"output_tokens\":3,\"reasoning_tokens\":4,\
            \"cost_pico\":6,\"outcome\":\"incomplete\",\"streamed\":true}";
        let [row] = decode(value).unwrap().try_into().unwrap();
        assert_eq!((row.request_id.as_str(), row.model.as_str(), row.at_ms), ("resp_1", "a/b", 5));
        assert_eq!((row.reasoning_tokens, row.cost_pico, row.streamed), (4, 6, true));
        assert_eq!(row.outcome, UsageOutcome::Incomplete);
    }

    #[test]
    fn a_row_is_a_third_of_its_json() {
        let row = UsageRow {
            request_id: "resp_0123456789abcdef0123456789abcdef".to_owned(),
            at_ms: 1_700_000_000_000,
            workspace: WorkspaceId::from_bytes([7; 16]),
            key: "abcdefghijkl".parse().unwrap(),
            kind: UsageKind::Responses,
            model: "vendor/model".to_owned(),
            provider: "provider".to_owned(),
            input_tokens: 1_000,
            cached_tokens: 0,
            output_tokens: 500,
            reasoning_tokens: 0,
            cost_pico: 12_345_678,
            outcome: UsageOutcome::Completed,
            streamed: false,
        };
        let (json, block) = (rows::encode_body(&row).len(), encode(&[row]).len());
        assert!(block * 3 <= json, "{block} and {json}");
    }
}
