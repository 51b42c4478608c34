//! HTTP through the host, and the messages a model gets when a request fails.

use url::{Host, Url};

use crate::bindings::http::{self, HttpError, Request, Response};
use crate::bindings::http_stream;

/// The longest URL that is accepted.
const URL_BYTES_MAX: usize = 8 * 1024;

/// Sends requests. There are two implementations: the host, and scripted answers for tests.
pub trait Network {
    /// Sends one request and waits for the whole answer.
    ///
    /// # Errors
    ///
    /// When the request fails, with one of the cases of the contract.
    fn send(&mut self, request: &Request) -> Result<Response, HttpError>;
}

/// What to do after a piece of an answer.
#[derive(Debug)]
pub enum Reading {
    /// Read on.
    More,
    /// Send these requests, then read on. Their answers are not needed.
    Replies(Vec<Request>),
    /// Read no further.
    Enough,
}

/// Sends requests to servers that may keep their answers open.
pub trait Streaming: Network {
    /// Sends one request and reads the answer as `next` says. `next` is called after each piece with
    /// everything received so far.
    ///
    /// # Errors
    ///
    /// When the request fails, with one of the cases of the contract.
    fn send_until(
        &mut self,
        request: &Request,
        next: &mut dyn FnMut(&Response) -> Reading,
    ) -> Result<Response, HttpError>;
}

/// The network of the host, which checks every request.
#[derive(Debug)]
pub struct Wire;

impl Network for Wire {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        http::send(request)
    }
}

impl Streaming for Wire {
    fn send_until(
        &mut self,
        request: &Request,
        next: &mut dyn FnMut(&Response) -> Reading,
    ) -> Result<Response, HttpError> {
        let exchange = http_stream::open(request)?;
        let mut response = Response {
            status: exchange.status(),
            url: request.url.clone(),
            headers: exchange.headers(),
            body: Vec::new(),
        };
        loop {
            let mut piece = exchange.read()?;
            if piece.is_empty() {
                return Ok(response);
            }
            response.body.append(&mut piece);
            match next(&response) {
                Reading::More => {}
                // The exchange goes on also where a reply fails.
                Reading::Replies(replies) => replies.iter().for_each(|reply| drop(self.send(reply))),
                Reading::Enough => return Ok(response),
            }
        }
    }
}

/// The message that a model gets instead of an answer. It depends on the error only, so that it
/// reveals nothing about the secrets of other workspaces or interns.
#[must_use]
pub fn sentence(error: HttpError) -> &'static str {
    match error {
        HttpError::Denied => {
            "This tool may not send that request: the host, port, method or one of the headers is not allowed. \
             Only the operator can change that; use another source."
        }
        HttpError::Invalid => {
            "The request is malformed: check the URL, the headers and where a secret is to be placed."
        }
        HttpError::SecretUnavailable => {
            "The secret is not available for this host. Ask the user to store it with this host, or go on without it."
        }
        HttpError::Unreachable => {
            "The host was not found or did not accept the connection. Check the spelling of the host."
        }
        HttpError::Untrusted => "The host did not present an acceptable TLS certificate.",
        HttpError::Timeout => "The host did not answer in time.",
        HttpError::TooLarge => "The answer is larger than this tool accepts.",
        HttpError::Broken => "The connection broke, or the answer was not HTTP.",
        HttpError::Exhausted => "This call has sent as many requests as it may.",
    }
}

/// The value of the first header with this name, which must be in lower case.
#[must_use]
pub fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let found = response.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// Reads an absolute `https` URL with the same library as the host. Input that the library would
/// silently repair is refused.
///
/// # Errors
///
/// What is wrong with the URL, for the model.
pub fn web_address(text: &str) -> Result<Url, &'static str> {
    if text.len() > URL_BYTES_MAX {
        return Err("is longer than 8192 bytes");
    }
    // The library drops tabs and line breaks and turns `\` into `/`.
    if text.chars().any(|char| char.is_control() || char == '\\') {
        return Err("holds a character that no URL has");
    }
    let url =
        Url::parse(text).map_err(|_| "is not an absolute URL; an example is https://example.com/page")?;
    if url.scheme() != "https" {
        return Err("must begin with https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password");
    }
    match url.host() {
        Some(Host::Domain(domain)) if !domain.is_empty() => Ok(url),
        _ => Err("must name its host, not an address"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_plain_https_addresses_pass() {
        assert_eq!(web_address("https://EXAMPLE.com/a b").unwrap().as_str(), "https://example.com/a%20b");
        assert_eq!(web_address("https://bücher.example/").unwrap().host_str(), Some("xn--bcher-kva.example"));
        for text in [
            "",
            "example.com",
            "http://example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "data:text/html,x",
            "https://user@example.com/",
            "https://:pass@example.com/",
            "https://exa\tmple.com/",
            "https://example.com\\@evil.com/",
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://[::1]/",
            "https:///",
        ] {
            assert!(web_address(text).is_err(), "{text:?}");
        }
        assert!(web_address(&format!("https://example.com/{}", "a".repeat(9000))).is_err());
    }

    #[test]
    fn every_error_has_a_sentence_of_its_own() {
        let errors = [
            HttpError::Denied,
            HttpError::Invalid,
            HttpError::SecretUnavailable,
            HttpError::Unreachable,
            HttpError::Untrusted,
            HttpError::Timeout,
            HttpError::TooLarge,
            HttpError::Broken,
            HttpError::Exhausted,
        ];
        let sentences: std::collections::BTreeSet<_> = errors.into_iter().map(sentence).collect();
        assert_eq!(sentences.len(), errors.len());
    }

    proptest! {
        #[test]
        fn addresses_never_panic(text in "(https?://)?\\PC{0,60}") {
            if let Ok(url) = web_address(&text) {
                prop_assert!(web_address(url.as_str()).is_ok());
            }
        }
    }
}
