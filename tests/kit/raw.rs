//! Requests written as raw bytes, for cases that no client library can produce.

use super::host::Host;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

pub struct Raw(TcpStream);

impl Raw {
    pub async fn connect(host: &Host) -> Self {
        let address = host.base.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends bytes; false if the host has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Splits the connection, so that both directions can be used at the same time.
    pub fn split(self) -> (RawReader, RawWriter) {
        let (reader, writer) = self.0.into_split();
        (RawReader(reader), RawWriter(writer))
    }

    /// Waits for `100 Continue`.
    pub async fn is_asked_for_body(&mut self) {
        let mut bytes = *b"HTTP/1.1 100 Continue\r\n\r\n";
        let expected = bytes;
        self.0.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, expected, "{}", String::from_utf8_lossy(&bytes));
    }

    /// Reads to the end of the connection.
    pub async fn ended(mut self) -> String {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).await.ok();
        String::from_utf8(bytes).unwrap()
    }

    /// Reads one response with a content length.
    pub async fn one_answer(&mut self) -> String {
        let mut text = String::new();
        let mut length = None;
        while length.is_none_or(|length| text.len() < length) {
            let mut bytes = [0; 4096];
            let count = self.0.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the connection ended: {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            length = text.split_once("\r\n\r\n").map(|(head, _)| {
                let head = head.to_ascii_lowercase();
                let body = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                head.len() + 4 + body.parse::<usize>().unwrap()
            });
        }
        text
    }

    /// Reads to the end of the connection; returns status, head and body of the only response.
    pub async fn answer(mut self) -> (u16, String, Value) {
        let mut bytes = Vec::new();
        // The host may reset the connection after the response instead of reading the rest of the
        // request.
        self.0.read_to_end(&mut bytes).await.ok();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

/// The receiving half.
pub struct RawReader(OwnedReadHalf);

impl RawReader {
    /// The status of the next response.
    pub async fn status(&mut self) -> u16 {
        let mut line = [0; 12];
        self.0.read_exact(&mut line).await.unwrap();
        std::str::from_utf8(&line).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl RawReader {
    /// What arrives until the host ends the connection.
    pub async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // The host may reset the connection.
        self.0.read_to_end(&mut bytes).await.ok();
        String::from_utf8(bytes).unwrap()
    }
}

/// The sending half.
pub struct RawWriter(OwnedWriteHalf);

impl RawWriter {
    /// Sends bytes; false if the host has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }
}

/// The head of a `POST` without its final blank line; asks for the connection to be closed.
pub fn post_head(host: &Host, path: &str, headers: &str) -> String {
    format!(
        "POST /v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{headers}",
        host.key
    )
}

/// Sends a request on its own connection, with the path unchanged; returns status, head and body.
pub async fn ask_raw(
    host: &Host,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, Value) {
    let mut raw = Raw::connect(host).await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        host.key,
        body.len()
    );
    assert!(raw.send(request.as_bytes()).await);
    raw.answer().await
}
