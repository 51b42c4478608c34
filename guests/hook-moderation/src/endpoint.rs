//! The moderation endpoint: `POST {input, model?}`, answered with `results`, one for each text. The
//! host adds the key, if any, and checks the destination.

use std::borrow::Cow;

use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::retry_after_ms;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::operator::Endpoint;
use crate::texts::Position;
use crate::{Flagged, Outside, Texts};

/// The largest size of one piece of text and of one request, in bytes.
const PIECE_BYTES_MAX: usize = 64 * 1024;
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// The largest number of pieces in one request.
const BATCH_PIECES_MAX: usize = 64;
/// The largest number of requests. The host allows twice as many.
const BATCHES_MAX: usize = 16;
/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: u32 = 1024 * 1024;

/// Why there is no verdict.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A temporary failure.
    Passing { line: String, retry_after_ms: Option<u64> },
    /// A permanent failure, which the operator must fix.
    Lasting(String),
    /// There is more text than is moderated.
    TooLong,
    /// The endpoint refuses the request, for its input or for what the operator configured.
    Refused(String),
}

impl Trouble {
    /// The message for the operator's log.
    pub(crate) fn line(&self) -> &str {
        match self {
            Self::Passing { line, .. } | Self::Lasting(line) | Self::Refused(line) => line,
            Self::TooLong => "the input is longer than what is moderated",
        }
    }

    fn passing(line: impl Into<String>) -> Self {
        Self::Passing { line: line.into(), retry_after_ms: None }
    }
}

#[derive(Serialize)]
struct Question<'a> {
    input: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    flagged: bool,
    #[serde(default)]
    categories: Map<String, Value>,
}

/// A text, or a part of a long text.
struct Piece<'a> {
    text: &'a str,
    position: Position,
}

/// The first text that the endpoint flags.
pub(crate) fn flagged(
    endpoint: &Endpoint,
    texts: &Texts,
    outside: &mut impl Outside,
) -> Result<Option<Flagged>, Trouble> {
    let joined = texts.joined();
    let batches = batches(&joined);
    if batches.len() > BATCHES_MAX {
        return Err(Trouble::TooLong);
    }
    for batch in &batches {
        let verdicts = ask(endpoint, batch, outside)?;
        let guilty = batch.iter().zip(verdicts).find(|(_, verdict)| verdict.flagged);
        if let Some((piece, verdict)) = guilty {
            return Ok(Some(Flagged { reasons: reasons(&verdict), pointer: texts.pointer(piece.position) }));
        }
    }
    Ok(None)
}

/// The names of the categories that are true. Names that contain a separator of `code` (`,` or `#`)
/// are left out, because they would look like several names or like the pointer.
fn reasons(verdict: &Verdict) -> Vec<String> {
    let categories = verdict.categories.iter().filter(|(_, is_true)| **is_true == Value::Bool(true));
    let plain = |name: &&String| !name.is_empty() && !name.contains([',', '#']);
    let reasons: Vec<String> = categories.map(|(name, _)| name).filter(plain).cloned().collect();
    if reasons.is_empty() { vec!["flagged".to_owned()] } else { reasons }
}

fn ask(
    endpoint: &Endpoint,
    batch: &[Piece<'_>],
    outside: &mut impl Outside,
) -> Result<Vec<Verdict>, Trouble> {
    let question =
        Question { input: batch.iter().map(|piece| piece.text).collect(), model: endpoint.model.as_deref() };
    let json = |name: &str| (name.to_owned(), "application/json".to_owned());
    let headers = vec![json("content-type"), json("accept")];
    let body = serde_json::to_vec(&question)
        .map_err(|_| Trouble::Lasting("a question cannot be written".to_owned()))?;
    let request = Request::new("POST", &endpoint.url, headers, body, ANSWER_BYTES_MAX, endpoint.timeout_ms);
    let response = outside.send(&request).map_err(trouble)?;
    match response.status {
        200 => {}
        // The client determines its input, so `on_error` must not let an input pass that the endpoint refuses.
        413 => return Err(Trouble::TooLong),
        status @ (400 | 422) => {
            let line = format!("it answered with status {status}: it refuses the input, or `model` is wrong");
            return Err(Trouble::Refused(line));
        }
        _ => return Err(refused(&response)),
    }
    let answer: Answer = serde_json::from_slice(&response.body)
        .map_err(|_| Trouble::passing("the answer has not the form of a moderation"))?;
    if answer.results.len() != batch.len() {
        return Err(Trouble::passing("the answer has another number of results than texts were sent"));
    }
    Ok(answer.results)
}

fn trouble(error: HttpError) -> Trouble {
    match error {
        HttpError::Unreachable => Trouble::passing("the host was not found or did not accept the connection"),
        HttpError::Timeout => Trouble::passing("the host did not answer in time"),
        HttpError::TooLarge => Trouble::passing("the answer is longer than 1 MiB"),
        HttpError::Broken => Trouble::passing("the connection broke"),
        HttpError::Exhausted => Trouble::passing("this request has sent as many requests as it may"),
        HttpError::Denied => Trouble::Lasting("the host is not granted to this plugin".to_owned()),
        HttpError::Invalid => {
            Trouble::Lasting("the URL or the placement of a secret is malformed".to_owned())
        }
        HttpError::SecretUnavailable => {
            Trouble::Lasting("the vault has no secret of the granted name for this host".to_owned())
        }
        HttpError::Untrusted => Trouble::Lasting("the TLS certificate was not acceptable".to_owned()),
    }
}

/// A status other than 200. The body is not logged, because it may quote the input.
fn refused(response: &Response) -> Trouble {
    let line = format!("it answered with status {}", response.status);
    match response.status {
        408 | 429 | 500.. => Trouble::Passing { line, retry_after_ms: retry_after_ms(&response.headers) },
        _ => Trouble::Lasting(line),
    }
}

/// Groups the texts, cut into pieces, into as few requests as possible.
fn batches<'a>(texts: &'a [(Position, Cow<'_, str>)]) -> Vec<Vec<Piece<'a>>> {
    let mut batches: Vec<Vec<Piece<'_>>> = Vec::new();
    let mut bytes_left = 0;
    let pieces = texts
        .iter()
        .flat_map(|(position, text)| pieces(text).map(|text| Piece { text, position: *position }));
    for piece in pieces {
        match batches.last_mut() {
            Some(batch) if piece.text.len() <= bytes_left && batch.len() < BATCH_PIECES_MAX => {
                bytes_left -= piece.text.len();
                batch.push(piece);
            }
            _ => {
                bytes_left = BATCH_BYTES_MAX.saturating_sub(piece.text.len());
                batches.push(vec![piece]);
            }
        }
    }
    batches
}

/// Cuts a text into pieces of bounded length, at character boundaries.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, more) = rest.split_at_checked(rest.floor_char_boundary(PIECE_BYTES_MAX))?;
        rest = more;
        Some(piece)
    })
}
