//! URLs of guests and where redirects lead, beside what a client makes of them that dials.
#![no_main]

use cofferdam_egress::Target;
use url::Url;

/// What a client dials that knows nothing of our rules; the root's dot makes no difference to where.
fn dialled(url: &Url) -> (&str, Option<u16>, &str) {
    let host = url.host_str().unwrap_or_default();
    (host.strip_suffix('.').unwrap_or(host), url.port_or_known_default(), url.scheme())
}

fn read(target: &Target) -> (&str, Option<u16>, &str) {
    (target.host(), Some(target.port()), if target.is_https() { "https" } else { "http" })
}

libfuzzer_sys::fuzz_target!(|texts: (&str, &str)| {
    let (text, location) = texts;
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
