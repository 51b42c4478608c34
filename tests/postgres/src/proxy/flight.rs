//! The client's bytes, cut where the client waits.

use super::sql::effect;
use crate::Result;
use anyhow::{Context, bail};
use std::collections::HashMap;
use std::ops::Range;

/// A client of a test sends nothing near this.
const LONGEST: usize = 64 << 20;

/// The text of a transaction that rules see; what is longer is cut off.
const LONGEST_TEXT: usize = 1 << 20;

/// What a client sends up to a message that asks for an answer: a query, or messages of the extended protocol up to
/// `Sync`. Messages that are no part of this (a password, data of COPY, the end) come as they are.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) bytes: Vec<u8>,
    /// The server will answer with `ReadyForQuery`.
    pub(super) is_answered: bool,
    /// It asks for something; closing a statement does not, and no client waits for that.
    pub(super) is_request: bool,
    /// It came together with an earlier one: the client did not wait between them.
    pub(super) is_pipelined: bool,
    /// The message that is or executes a COMMIT.
    pub(super) commit: Option<Range<usize>>,
    /// What is executed.
    pub(super) sql: String,
    /// What was executed in the transaction so far, this flight included.
    pub(super) transaction: String,
    /// The number of this flight in its transaction, from 1.
    pub(super) position: u32,
}

/// Cuts the bytes of one connection into flights.
#[derive(Debug, Default)]
pub(super) struct Flights {
    buffer: Vec<u8>,
    current: Flight,
    /// Texts of prepared statements and of portals by name.
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
    /// The text so far and the number of flights of the transaction that is open.
    transaction: Option<(String, u32)>,
    is_open: bool,
}

impl Flights {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() + self.current.bytes.len() > LONGEST {
            bail!("a flight of more than {LONGEST} bytes");
        }
        Ok(())
    }

    /// The next flight that is complete.
    pub(super) fn next(&mut self) -> Result<Option<Flight>> {
        while let Some(length) = message_length(&self.buffer)? {
            let Some(message) = self.buffer.get(..length) else { return Ok(None) };
            let message = message.to_vec();
            self.buffer.drain(..length);
            if self.take(&message)? {
                return Ok(Some(self.finish()));
            }
        }
        Ok(None)
    }

    /// Adds a message. `true`: nothing is to be waited for before the flight is sent.
    fn take(&mut self, message: &[u8]) -> Result<bool> {
        let start = self.current.bytes.len();
        self.current.bytes.extend_from_slice(message);
        let (kind, body) = (message.first().copied(), message.get(5..).unwrap_or_default());
        match kind {
            Some(b'Q') => {
                let (sql, _) = text(body)?;
                self.execute(&String::from_utf8_lossy(sql), start);
                self.current.is_answered = true;
            }
            Some(b'P') => {
                let (name, rest) = text(body)?;
                let (sql, _) = text(rest)?;
                self.statements.insert(name.to_vec(), String::from_utf8_lossy(sql).into_owned());
                self.current.is_request = true;
            }
            Some(b'B') => {
                let (portal, rest) = text(body)?;
                let (statement, _) = text(rest)?;
                let sql = self.statements.get(statement).cloned().unwrap_or_default();
                self.portals.insert(portal.to_vec(), sql);
                self.current.is_request = true;
            }
            Some(b'E') => {
                let (portal, _) = text(body)?;
                let sql = self.portals.get(portal).cloned().unwrap_or_default();
                self.execute(&sql, start);
            }
            Some(b'D') => self.current.is_request = true,
            Some(b'C') => {}
            Some(b'S' | b'F') => self.current.is_answered = true,
            _ => return Ok(true),
        }
        Ok(self.current.is_answered)
    }

    fn execute(&mut self, sql: &str, start: usize) {
        let flight = &mut self.current;
        let (text, _) = match &mut self.transaction {
            Some(open) if self.is_open || !flight.sql.is_empty() => open,
            closed => closed.insert((String::new(), 0)),
        };
        for text in [&mut flight.sql, text] {
            if text.len() + sql.len() < LONGEST_TEXT {
                text.push_str(sql);
                text.push('\n');
            }
        }
        flight.is_request = true;
        let effect = effect(sql);
        if effect.commits && flight.commit.is_none() {
            flight.commit = Some(start..flight.bytes.len());
        }
        self.is_open = effect.open.unwrap_or(self.is_open);
    }

    fn finish(&mut self) -> Flight {
        let mut flight = std::mem::take(&mut self.current);
        if let (false, Some((text, count))) = (flight.sql.is_empty(), &mut self.transaction) {
            *count += 1;
            flight.position = *count;
            flight.transaction.clone_from(text);
        }
        flight
    }
}

/// The length of the message at the start of these bytes, its type byte included; `None` until it is known.
pub(super) fn message_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(length) = bytes.get(1..5).and_then(|length| length.try_into().ok()) else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(length))?;
    if !(4..=LONGEST).contains(&length) {
        bail!("a message of {length} bytes");
    }
    Ok(Some(length + 1))
}

/// A text that ends with a zero byte, and what follows it.
fn text(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = memchr::memchr(0, bytes).context("a text without its end")?;
    Ok((bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{Flight, Flights};

    fn message(kind: u8, parts: &[&str]) -> Vec<u8> {
        let body: Vec<u8> = parts.iter().flat_map(|part| [part.as_bytes(), b"\0"].concat()).collect();
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], &body].concat()
    }

    fn flights(bytes: &[u8], piece: usize) -> Vec<Flight> {
        let mut flights = Flights::default();
        let mut all = Vec::new();
        for bytes in bytes.chunks(piece) {
            flights.push(bytes).unwrap();
            while let Some(flight) = flights.next().unwrap() {
                all.push(flight);
            }
        }
        all
    }

    #[test]
    fn flights_are_the_same_however_the_bytes_are_cut() {
        let extended =
            |sql: &str| [message(b'P', &["", sql]), message(b'B', &["", ""]), message(b'E', &[""])].concat();
        let sync = message(b'S', &[]);
        let bytes = [
            message(b'p', &["password"]),
            extended("BEGIN"),
            extended("UPDATE a"),
            sync.clone(),
            extended("INSERT INTO b"),
            extended("COMMIT"),
            sync.clone(),
            message(b'P', &["s1", "COMMIT"]),
            sync.clone(),
            message(b'Q', &["BEGIN; SELECT 1"]),
            message(b'B', &["p1", "s1"]),
            message(b'E', &["p1"]),
            sync.clone(),
            message(b'C', &["Ss1"]),
            sync,
            message(b'X', &[]),
        ]
        .concat();
        for piece in [1, 7, bytes.len()] {
            let all = flights(&bytes, piece);
            let described: Vec<_> = all
                .iter()
                .map(|flight| {
                    (flight.position, flight.is_answered, flight.is_request, flight.commit.is_some())
                })
                .collect();
            let wanted = [
                (0, false, false, false),
                (1, true, true, false),
                (2, true, true, true),
                (0, true, true, false),
                (1, true, true, false),
                (2, true, true, true),
                (0, true, false, false),
                (0, false, false, false),
            ];
            assert_eq!(described, wanted);
            assert_eq!(all[2].transaction, "BEGIN\nUPDATE a\nINSERT INTO b\nCOMMIT\n");
            let commit = all[2].commit.clone().unwrap();
            assert_eq!(all[2].bytes[commit], message(b'E', &[""]));
            assert_eq!(all.iter().flat_map(|flight| flight.bytes.clone()).collect::<Vec<_>>(), bytes);
        }
    }

    #[test]
    fn messages_of_impossible_length_are_refused() {
        for length in [0, 3, u32::MAX] {
            let mut flights = Flights::default();
            flights.push(&[&b"Q"[..], &length.to_be_bytes()].concat()).unwrap();
            assert!(flights.next().is_err(), "{length}");
        }
    }
}
