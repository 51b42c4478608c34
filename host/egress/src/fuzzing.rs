//! Entry points for the fuzz targets in `tests/fuzz`, for `--cfg fuzzing` and the tests below. Each takes arbitrary
//! input and panics when a guarantee does not hold.

use std::time::Duration;

use bytes::Bytes;
use cofferdam_store::{HostName, Hosts, SecretName};
use url::{Host, Url};

use crate::guest_request::{GuestLimits, GuestRequest, placeholders};
use crate::path;
use crate::placeholder::{OPENING, in_value, is_in_url};
use crate::scrub::{ScrubSet, spellings};
use crate::target_url::Target;

/// Calls a target that takes text.
fn with_text(data: &[u8], run: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        run(text);
    }
}

/// A host name, beside what a client makes of it that dials.
pub fn host(data: &[u8]) {
    with_text(data, |text| {
        let Ok(host) = text.parse::<HostName>() else { return };
        let name = host.as_str();
        assert!(name.len() <= 253 && name.is_ascii(), "{name}");
        // One spelling: what is stored reads as itself.
        assert_eq!(name.parse::<HostName>().unwrap().as_str(), name);
        // What is dialled for it is this name, no address and no part of something else.
        for spelling in [name, text] {
            let url =
                Url::parse(&format!("https://{spelling}/")).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(url.host_str().map(|host| host.strip_suffix('.').unwrap_or(host)), Some(name));
            assert!(matches!(url.host(), Some(Host::Domain(_))), "{name}");
        }
        assert_eq!(Hosts::parse(&[text, name]).unwrap().as_slice().len(), 1);
    });
}

/// A name of a secret, beside the pattern `[a-z][a-z0-9]*(_[a-z0-9]+)*` of at most 255 characters.
pub fn name(data: &[u8]) {
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    with_text(data, |text| {
        let fits = text.len() <= 255
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.split('_').all(is_part);
        let name = text.parse::<SecretName>();
        assert_eq!(name.is_ok(), fits, "{text}");
        if let Ok(name) = name {
            assert_eq!(name.as_str(), text);
        }
    });
}

/// What a client dials that knows nothing of our rules; the root's dot makes no difference to where.
fn dialled(url: &Url) -> (&str, Option<u16>, &str) {
    let host = url.host_str().unwrap_or_default();
    (host.strip_suffix('.').unwrap_or(host), url.port_or_known_default(), url.scheme())
}

fn read(target: &Target) -> (&str, Option<u16>, &str) {
    (target.host(), Some(target.port()), if target.is_https() { "https" } else { "http" })
}

/// A guest's URL on the first line and where a redirect leads on the second, beside what a client makes of them that
/// dials.
pub fn target(data: &[u8]) {
    with_text(data, |text| {
        let (text, location) = text.split_once('\n').unwrap_or((text, ""));
        let Ok(target) = Target::parse(text) else { return };
        let url = Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read(&target), dialled(&url), "{text}");
        assert!(url.username().is_empty() && url.password().is_none(), "{text}");
        // One spelling: what is requested reads as itself, and its host is what secrets are bound to.
        assert_eq!(Target::parse(target.as_str()).unwrap().as_str(), target.as_str());
        if let Some(name) = target.host_name() {
            assert_eq!(name.as_str(), target.host());
        }
        let Ok(next) = target.redirect(location) else { return };
        assert!(next.is_https() || !target.is_https(), "{location}");
        let joined = url.join(location).unwrap_or_else(|error| panic!("{location}: {error}"));
        assert_eq!(read(&next), dialled(&joined), "{text} {location}");
    });
}

/// The lines of a guest's request: method, URL, header values, then the body. A placeholder is found or the request is
/// refused: none is sent as text.
pub fn placeholder(data: &[u8]) {
    with_text(data, |text| {
        if let Ok(found) = in_value(text) {
            assert_eq!(found.len(), text.matches(OPENING).count(), "{text}");
            for (range, secret) in found {
                assert_eq!(text.get(range), Some(format!("{OPENING}{secret}}}}}").as_str()));
            }
        }
        assert!(is_in_url(text) || !text.contains(OPENING), "{text}");
        let mut lines = text.split('\n');
        let (Some(method), Some(url)) = (lines.next(), lines.next()) else { return };
        let Ok(target) = Target::parse(url) else { return };
        assert!(!is_in_url(url), "{url}");
        let body = Bytes::copy_from_slice(lines.next_back().unwrap_or_default().as_bytes());
        let headers: Vec<_> = lines.map(|value| ("x-test".to_owned(), value.to_owned())).collect();
        let written: usize = headers.iter().map(|(_, value)| value.matches(OPENING).count()).sum();
        let limits = GuestLimits { body_bytes_max: 1, total: Duration::from_secs(1) };
        let request =
            GuestRequest { method: method.to_owned(), target, headers, body, limits, public_only: false };
        let is_outside = [method.as_bytes(), &request.body]
            .iter()
            .any(|part| memchr::memmem::find(part, OPENING.as_bytes()).is_some());
        if let Ok(found) = placeholders(&request) {
            assert!(!is_outside && found.len() == written);
        }
        // Nothing releases these secrets, so a request with a placeholder is not sent.
        assert!(request.checked(Vec::new()).is_err() || written == 0);
    });
}

/// A path that a provider's plugin wrote: appended to the operator's prefix, it stays below it.
pub fn guest_path(data: &[u8]) {
    with_text(data, |text| {
        let Ok(path) = path::check(text) else { return };
        let url = format!("https://api.example/v1/{path}");
        let url = Url::parse(&url).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((url.host_str(), url.port()), (Some("api.example"), None), "{text}");
        assert!(url.path().starts_with("/v1/") && url.username().is_empty(), "{text}");
    });
}

/// Takes two values out of a text, in one piece and in many. The first two bytes are the lengths of the values, which
/// follow. What remains is the text, in pairs of bytes: 1 and a
/// number stand for a spelling of a value, 2 and a number for the end of a read so many bytes earlier.
pub fn scrub(data: &[u8]) {
    let [one, two, rest @ ..] = data else { return };
    let (one, rest) = rest.split_at(usize::from(one % 64).min(rest.len()));
    let (two, rest) = rest.split_at(usize::from(two % 64).min(rest.len()));
    let set = ScrubSet::new([("one", Bytes::copy_from_slice(one)), ("two", Bytes::copy_from_slice(two))]);
    let written: Vec<Vec<u8>> =
        [one, two].into_iter().filter(|value| value.len() >= 8).flat_map(spellings).collect();
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    for piece in rest.chunks(2) {
        match piece {
            [0x01, choice] if !written.is_empty() => {
                text.extend(&written[usize::from(*choice) % written.len()]);
            }
            [0x02, back] => ends.push(text.len().saturating_sub(usize::from(*back))),
            other => text.extend(other),
        }
    }
    let whole = set.scrub(&text).map_or_else(|| text.clone(), |(clean, _)| clean);
    for spelling in &written {
        // A label may be a part of what looks like a value.
        let is_of_labels = spelling.contains(&b'[')
            || spelling.contains(&b']')
            || [&b"[secret:one]"[..], b"[secret:two]"].iter().any(|label| contains(label, spelling));
        assert!(is_of_labels || !contains(&whole, spelling), "{:?}", String::from_utf8_lossy(spelling));
    }
    ends.sort_unstable();
    let (mut scrubber, mut given, mut begin) = (set.scrubber(), Vec::new(), 0);
    let text = Bytes::from(text);
    for end in ends.into_iter().chain([text.len()]) {
        given.extend_from_slice(&scrubber.push(text.slice(begin..end)));
        begin = end;
    }
    given.extend_from_slice(&scrubber.finish());
    assert_eq!(given, whole);
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

#[cfg(test)]
mod tests {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.rs"));

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        each_of("hosts", super::host);
        each_of("names", super::name);
        each_of("targets", super::target);
        each_of("placeholders", super::placeholder);
        each_of("paths", super::guest_path);
        each_of("scrub", super::scrub);
    }
}
