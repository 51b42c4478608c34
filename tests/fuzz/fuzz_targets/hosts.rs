//! Host names, beside what a client makes of them that dials.
#![no_main]

use cofferdam_store::{HostName, Hosts};
use url::{Host, Url};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(host) = text.parse::<HostName>() else { return };
    let name = host.as_str();
    assert!(name.len() <= 253 && name.is_ascii(), "{name}");
    // One spelling: what is stored reads as itself.
    assert_eq!(name.parse::<HostName>().unwrap().as_str(), name);
    // What is dialled for it is this name, no address and no part of something else.
    let url = Url::parse(&format!("https://{name}/")).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(url.host(), Some(Host::Domain(name)));
    assert_eq!(url.as_str(), format!("https://{name}/"));
    let ascii = idna::domain_to_ascii(text.strip_suffix('.').unwrap_or(text));
    assert!(ascii.is_ok_and(|ascii| ascii == name), "{name}");
    assert_eq!(Hosts::parse(&[text, name]).unwrap().as_slice().len(), 1);
});
