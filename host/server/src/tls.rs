//! TLS of the two listeners: the certificate that is served, and the handshake of a connection. A new certificate is
//! used for new connections; running ones keep the settings that they began with.

mod certificate;
mod pair;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{ConfigError, TlsFiles};
use crate::stall::Stalling;

pub(crate) use certificate::CertificateFacts;
pub(crate) use pair::{CertificatePair, PairBytes};

/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How long, and how many bytes of, a request in plain HTTP are read after its answer. Closing a socket with unread
/// bytes could destroy the answer.
const PLAIN_PATIENCE: Duration = Duration::from_secs(1);
const PLAIN_BYTES_MAX: u64 = 16 * 1024;
/// The answer to a request in plain HTTP.
const PLAIN_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 58\r\n\
    Connection: close\r\n\r\nThis port speaks TLS: use https:// in place of http:// .\r\n";

/// The certificate of a running host.
pub(crate) struct Tls {
    current: ArcSwap<CertificatePair>,
}

impl Tls {
    /// Reads the certificate and the key. A certificate that is not valid now is served all the same and warned of:
    /// without it no client at all would be answered.
    ///
    /// # Errors
    ///
    /// The files cannot be used, with the line of the configuration that names them.
    pub(crate) fn start(files: &TlsFiles, now_s: i64) -> Result<Self, ConfigError> {
        let pair = CertificatePair::read(files)?;
        if let Some(trouble) = pair.facts().not_valid_at(now_s) {
            tracing::warn!(certificate = %files.certificate.path.display(), trouble, "clients refuse this certificate");
        }
        pair.warn_of_mode();
        Ok(Self { current: ArcSwap::from_pointee(pair) })
    }

    /// What new connections get.
    pub(crate) fn current(&self) -> Guard<Arc<CertificatePair>> {
        self.current.load()
    }

    pub(crate) fn replace(&self, pair: CertificatePair) {
        pair.warn_of_mode();
        tracing::info!(
            certificate = %pair.files().certificate.path.display(),
            names = %pair.facts().shown_names(),
            expires = %pair.facts().expires(),
            "new connections get the new certificate"
        );
        self.current.store(Arc::new(pair));
    }

    /// Does the handshake of a new connection. The caller limits its time.
    ///
    /// # Errors
    ///
    /// The client left, speaks plain HTTP, or does not agree on a version, a cipher or a protocol.
    pub(crate) async fn accept(
        &self,
        mut stream: TcpStream,
        write_patience: Duration,
    ) -> io::Result<TlsStream<Stalling<TcpStream>>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [HANDSHAKE_RECORD] {
            answer_plain(&mut stream).await?;
            return Err(io::Error::other("the client does not speak TLS"));
        }
        let acceptor = TlsAcceptor::from(self.current.load().settings());
        acceptor.accept(Stalling::new(stream, write_patience)).await
    }
}

/// Tells a client without TLS what to do.
async fn answer_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_ANSWER.as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(PLAIN_BYTES_MAX);
    let mut sink = tokio::io::sink();
    let read = tokio::io::copy(&mut rest, &mut sink);
    // The result is ignored: reading only keeps the answer from being lost.
    drop(tokio::time::timeout(PLAIN_PATIENCE, read).await);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::PLAIN_ANSWER;

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_names() {
        let (head, body) = PLAIN_ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
