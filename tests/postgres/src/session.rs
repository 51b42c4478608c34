//! The kit's own connection: over the server's socket file, whose folder only the server's user and root can enter, so
//! without a password. It needs no runtime and passes no proxy.

use crate::{PATIENCE, Result};
use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The rows of an answer; `None` is null.
pub type Rows = Vec<Vec<Option<String>>>;

const LONGEST_MESSAGE: usize = 64 << 20;

pub(crate) struct Session(UnixStream);

impl Session {
    pub(crate) fn open(socket: &Path, database: &str) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).with_context(|| format!("cannot reach {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut session = Self(stream);
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for word in ["user", "postgres", "database", database, ""] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        session.send(&body)?;
        session.until_ready()?;
        Ok(session)
    }

    /// Runs statements by the simple protocol: as one transaction, unless the text says otherwise.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Rows> {
        self.0.write_all(b"Q")?;
        self.send(&[sql.as_bytes(), b"\0"].concat())?;
        self.until_ready()
    }

    /// A body behind its length.
    fn send(&mut self, body: &[u8]) -> Result<()> {
        let length = u32::try_from(body.len() + 4)?;
        Ok(self.0.write_all(&[&length.to_be_bytes()[..], body].concat())?)
    }

    fn until_ready(&mut self) -> Result<Rows> {
        let mut rows = Rows::new();
        let mut failure = None;
        loop {
            let mut kind = [0];
            self.0.read_exact(&mut kind)?;
            let mut length = [0; 4];
            self.0.read_exact(&mut length)?;
            let length = usize::try_from(u32::from_be_bytes(length))?;
            if !(4..=LONGEST_MESSAGE).contains(&length) {
                bail!("a message of {length} bytes from the server");
            }
            let mut body = vec![0; length - 4];
            self.0.read_exact(&mut body)?;
            match &kind {
                b"Z" => return failure.map_or(Ok(rows), Err),
                b"D" => rows.push(row(&body).context("a row is cut off")?),
                b"E" => failure = failure.or_else(|| Some(anyhow::anyhow!("{}", said(&body)))),
                b"R" if body != [0; 4] => bail!("the server asks for a password on its own socket"),
                _ => {}
            }
            if kind == *b"E" && body.starts_with(b"SFATAL\0") {
                return Err(failure.context("a fatal error has a text")?);
            }
        }
    }
}

/// Severity, code and message of an error.
fn said(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let wanted = fields.filter_map(|field| match field.split_first() {
        Some((b'S' | b'C' | b'M', text)) => Some(String::from_utf8_lossy(text)),
        _ => None,
    });
    wanted.collect::<Vec<_>>().join(" ")
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // Null has the length -1.
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            columns.push(None);
            continue;
        };
        let (value, after) = rest.split_at_checked(length)?;
        columns.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Some(columns)
}
