//! One connection through a proxy.

use super::flight::{Flight, Flights, message_length};
use super::rule::Fault;
use super::{Shared, Tally, shut};
use crate::{Result, lock};
use anyhow::bail;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

const PIECE: usize = 64 << 10;

/// Codes in the place of a protocol's version.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const LONGEST_STARTUP: usize = 10_000;

pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    state: Mutex<State>,
    /// Kept by the proxy when the connection has ended.
    tally: Arc<Mutex<Tally>>,
}

#[derive(Default)]
struct State {
    /// How many flights the server was sent and has answered.
    sent: u64,
    answered: u64,
    /// The number of the flight whose answer is thrown away.
    swallowed: Option<u64>,
    /// Silent until `release` was called more often than this.
    silent_at: Option<u64>,
}

impl Link {
    pub(super) fn new(client: TcpStream, server: TcpStream, tally: Arc<Mutex<Tally>>) -> Self {
        for stream in [&client, &server] {
            // A delay of small packets would show in tests of speed; without the option they are only slower.
            drop(stream.set_nodelay(true));
        }
        Self { client, server, state: Mutex::default(), tally }
    }

    pub(super) fn cut(&self) {
        shut(&self.client, Shutdown::Both);
        shut(&self.server, Shutdown::Both);
    }

    pub(super) fn silent_at(&self) -> Option<u64> {
        lock(&self.state).silent_at
    }

    /// Forwards in both directions until one side is closed. Broken messages end the connection too.
    pub(super) fn forward(self: Arc<Self>, shared: &Arc<Shared>) {
        let Ok(is_plain) = self.start(shared) else { return self.cut() };
        let (link, sharing) = (Arc::clone(&self), Arc::clone(shared));
        let builder = std::thread::Builder::new().name("postgres proxy answers".to_owned());
        let Ok(answers) = builder.spawn(move || {
            drop(link.answers(&sharing, is_plain));
            link.cut();
        }) else {
            return self.cut();
        };
        let is_left_open = matches!(self.requests(shared, is_plain), Ok(LeftOpen(true)));
        if !is_left_open {
            self.cut();
        }
        drop(answers.join());
    }

    /// The messages before the first with a type. `false`: the connection is encrypted.
    fn start(&self, shared: &Shared) -> Result<bool> {
        loop {
            let mut head = [0; 8];
            (&self.client).read_exact(&mut head)?;
            let [a, b, c, d, code @ ..] = head;
            let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
            let code = u32::from_be_bytes(code);
            if !(8..=LONGEST_STARTUP).contains(&length) {
                bail!("a first message of {length} bytes");
            }
            let mut message = head.to_vec();
            message.resize(length, 0);
            (&self.client).read_exact(message.get_mut(8..).unwrap_or_default())?;
            self.to_server(shared, &message)?;
            if code != SSL_REQUEST && code != GSS_REQUEST {
                return Ok(true);
            }
            let mut answer = [0];
            (&self.server).read_exact(&mut answer)?;
            self.to_client(shared, &answer)?;
            if answer != *b"N" {
                return Ok(false);
            }
        }
    }

    fn requests(&self, shared: &Shared, is_plain: bool) -> Result<LeftOpen> {
        let mut piece = vec![0; PIECE];
        let mut flights = Flights::default();
        loop {
            let count = (&self.client).read(&mut piece)?;
            let bytes = piece.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(LeftOpen(false));
            }
            if !is_plain {
                self.to_server(shared, bytes)?;
                continue;
            }
            flights.push(bytes)?;
            if let Some(left) = self.send_all(shared, &mut flights)? {
                return Ok(left);
            }
        }
    }

    /// Forwards the flights that are complete. `Some`: nothing of the client is forwarded any more.
    fn send_all(&self, shared: &Shared, flights: &mut Flights) -> Result<Option<LeftOpen>> {
        let mut is_pipelined = false;
        while let Some(mut flight) = flights.next()? {
            flight.is_pipelined = std::mem::replace(&mut is_pipelined, true);
            let left = self.suffer(shared, &flight)?;
            if left.is_some() {
                return Ok(left);
            }
        }
        Ok(None)
    }

    /// Forwards a flight.
    fn send(&self, shared: &Shared, flight: &Flight) -> Result<()> {
        self.note(flight);
        self.to_server(shared, &flight.bytes)
    }

    /// Counts a flight, before its answer can arrive.
    fn note(&self, flight: &Flight) {
        let answered = u64::from(flight.is_answered);
        let waits = {
            let mut state = lock(&self.state);
            let has_all_answers = state.sent == state.answered;
            state.sent += answered;
            flight.is_request && has_all_answers && !flight.is_pipelined
        };
        let mut tally = lock(&self.tally);
        tally.flights += answered;
        tally.round_trips += u64::from(waits);
        tally.commits += u64::from(flight.commit.is_some());
    }

    /// Forwards a flight, or does what a rule says. `Some`: nothing of the client is forwarded any more.
    fn suffer(&self, shared: &Shared, flight: &Flight) -> Result<Option<LeftOpen>> {
        let Some(strike) = shared.count(flight) else {
            self.send(shared, flight)?;
            return Ok(None);
        };
        match strike.fault {
            Fault::CutBefore | Fault::CutAfter => {
                let end = if strike.fault == Fault::CutBefore { strike.start } else { strike.end };
                self.to_server(shared, flight.bytes.get(..end).unwrap_or_default())?;
                // A test that sees an error of its client finds the strike counted.
                shared.strike();
                self.cut();
                return Ok(Some(LeftOpen(false)));
            }
            Fault::SwallowReply => {
                {
                    let mut state = lock(&self.state);
                    state.swallowed = Some(state.sent + 1);
                }
                self.send(shared, flight)?;
                return Ok(Some(LeftOpen(true)));
            }
            Fault::Delay(delay) => {
                shared.hold(Some(delay))?;
                self.send(shared, flight)?;
            }
            Fault::Hold => {
                shared.hold(None)?;
                self.send(shared, flight)?;
            }
            Fault::CloseToServer => {
                shared.strike();
                self.send(shared, flight)?;
                shut(&self.server, Shutdown::Write);
                return Ok(Some(LeftOpen(true)));
            }
            Fault::CloseToClient => {
                shared.strike();
                shut(&self.client, Shutdown::Write);
                self.send(shared, flight)?;
            }
            Fault::SilenceBefore => {
                self.fall_silent(shared);
                shared.strike();
                self.send(shared, flight)?;
            }
            Fault::SilenceAfter => {
                self.fall_silent(shared);
                self.note(flight);
                self.write_to_server(&flight.bytes)?;
                shared.strike();
            }
        }
        Ok(None)
    }

    fn fall_silent(&self, shared: &Shared) {
        let from = lock(&shared.state).releases;
        lock(&self.state).silent_at = Some(from);
    }

    /// Forwards what the server sends and follows which flight it answers.
    fn answers(&self, shared: &Shared, is_plain: bool) -> Result<()> {
        let mut piece = vec![0; PIECE];
        let mut answers = Answers::default();
        loop {
            let count = (&self.server).read(&mut piece)?;
            let bytes = piece.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            if !is_plain {
                self.to_client(shared, bytes)?;
            } else if !self.answer_all(shared, &mut answers, bytes)? {
                return Ok(());
            }
        }
    }

    /// Forwards bytes answer by answer. `false`: one that is thrown away has come to its end.
    fn answer_all(&self, shared: &Shared, answers: &mut Answers, mut bytes: &[u8]) -> Result<bool> {
        while !bytes.is_empty() {
            let (length, is_ready) = answers.until_ready(bytes)?;
            let (segment, after) = bytes.split_at_checked(length).unwrap_or_default();
            bytes = after;
            if !self.answer(shared, segment, is_ready)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Forwards bytes of one answer. `false`: they were the end of one that is thrown away.
    fn answer(&self, shared: &Shared, bytes: &[u8], is_ready: bool) -> Result<bool> {
        let is_swallowed = {
            let mut state = lock(&self.state);
            let is_swallowed = state.swallowed == Some(state.answered + 1);
            // The first `ReadyForQuery` ends the authentication; no flight was sent before.
            state.answered = state.sent.min(state.answered + u64::from(is_ready));
            is_swallowed
        };
        if !is_swallowed {
            self.to_client(shared, bytes)?;
        } else if is_ready {
            shared.strike();
        }
        Ok(!(is_swallowed && is_ready))
    }

    fn to_server(&self, shared: &Shared, bytes: &[u8]) -> Result<()> {
        shared.pass(self)?;
        self.write_to_server(bytes)
    }

    fn write_to_server(&self, bytes: &[u8]) -> Result<()> {
        lock(&self.tally).bytes_to_server += u64::try_from(bytes.len())?;
        Ok((&self.server).write_all(bytes)?)
    }

    fn to_client(&self, shared: &Shared, bytes: &[u8]) -> Result<()> {
        shared.pass(self)?;
        lock(&self.tally).bytes_to_client += u64::try_from(bytes.len())?;
        Ok((&self.client).write_all(bytes)?)
    }
}

/// Whether a connection whose client is no longer heard stays open for answers.
struct LeftOpen(bool);

/// Finds the ends of answers in the server's bytes.
#[derive(Default)]
struct Answers {
    /// Type and length of the next message, as far as they have come.
    head: Vec<u8>,
    /// The bytes of the message that are still to come, and whether it is `ReadyForQuery`.
    left: usize,
    is_ready: bool,
}

impl Answers {
    /// How many of these bytes belong to the current answer, and whether its end is among them.
    fn until_ready(&mut self, bytes: &[u8]) -> Result<(usize, bool)> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.left == 0 {
                self.head.extend(rest.first());
                at += 1;
                self.begin()?;
                continue;
            }
            let step = self.left.min(rest.len());
            self.left -= step;
            at += step;
            if self.left == 0 && self.is_ready {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Begins a message once its head is whole.
    fn begin(&mut self) -> Result<()> {
        if let Some(length) = message_length(&self.head)? {
            self.left = length - self.head.len();
            self.is_ready = self.head.first() == Some(&b'Z');
            self.head.clear();
        }
        Ok(())
    }
}
