//! The search for secrets where none may be, for tests. It exists in builds with debug assertions only, and works only
//! where the variable [`VARIABLE`] is set and not empty. Each value that is released is remembered; a place that holds one of them in
//! any spelling ends the process.
//!
//! The spellings are written down here again, and not taken from the search that the host makes in answers: a mistake
//! there must not hide here.

use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The variable that turns the search on.
pub const VARIABLE: &str = "COFFERDAM_CANARIES";
/// The search in answers removes values from this length on (egress rule R19), so shorter ones may reach a guest. They
/// also occur in ordinary text by chance, and a finding would not mean that a secret is there.
const VALUE_BYTES_MIN: usize = 8;
/// Of a longer value the first and the last bytes are searched for, so that a part of it is found too.
const PART_BYTES: usize = 24;
/// The values that are searched for. A process of a test releases few.
const VALUES_MAX: usize = 64;
const PAGE_BYTES: usize = 4096;

#[derive(Default)]
struct Released {
    values: Vec<Vec<u8>>,
    spellings: Vec<(&'static str, Vec<u8>)>,
    /// A bit for each pair of bytes with which a spelling begins.
    beginnings: Vec<u64>,
}

/// Whether the search is on.
pub fn are_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()))
}

fn with<T>(work: impl FnOnce(&mut Released) -> T) -> T {
    static RELEASED: OnceLock<Mutex<Released>> = OnceLock::new();
    work(&mut RELEASED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner))
}

/// Remembers a value that leaves the vault, or that a credential is made of.
pub fn released(value: &[u8]) {
    if !are_wanted() || value.len() < VALUE_BYTES_MIN {
        return;
    }
    with(|released| {
        if released.values.len() >= VALUES_MAX || released.values.iter().any(|known| known == value) {
            return;
        }
        released.values.push(value.to_vec());
        let length = value.len().min(PART_BYTES);
        let (first, last) = (value.get(..length), value.get(value.len() - length..));
        for part in first.into_iter().chain(last) {
            released.spellings.extend(spellings(part));
        }
        released.spellings.sort_unstable();
        released.spellings.dedup();
        released.beginnings = vec![0; 1 << 10];
        for (_, spelling) in &released.spellings {
            if let [first, second, ..] = spelling.as_slice()
                && let Some(bits) = released.beginnings.get_mut(place(*first, *second) >> 6)
            {
                *bits |= 1 << (place(*first, *second) & 63);
            }
        }
    });
}

/// How many values are searched for.
#[must_use]
pub fn known() -> usize {
    if are_wanted() { with(|released| released.values.len()) } else { 0 }
}

/// Ends the process if these bytes hold a released value. `what` names them for the message.
pub fn search(what: &str, bytes: &[u8]) {
    if known() == 0 {
        return;
    }
    if let Some(spelling) = with(|released| released.found(bytes)) {
        // The log's thread may not come to write it before the process ends.
        let message = format!("canary: a released secret is in {what}, {spelling}\n");
        std::io::stderr().write_all(message.as_bytes()).unwrap_or_default();
        std::process::abort();
    }
}

impl Released {
    /// The name of the spelling in which a value occurs in these bytes.
    fn found(&self, bytes: &[u8]) -> Option<&'static str> {
        let mut before = 0;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..) {
            let (byte, more) = rest.split_first()?;
            // Most of a memory is zero, and a debug build is slow.
            if *byte == 0 && rest.get(..PAGE_BYTES).is_some_and(|page| page == [0; PAGE_BYTES]) {
                before = 0;
                at += PAGE_BYTES;
                continue;
            }
            let pair = place(before, *byte);
            let begins = self.beginnings.get(pair >> 6).is_some_and(|bits| bits >> (pair & 63) & 1 == 1);
            let found = if begins {
                let from = bytes.get(at.saturating_sub(1)..)?;
                let found = self.spellings.iter().find(|(_, spelling)| from.starts_with(spelling));
                found.map(|(name, _)| *name)
            } else {
                None
            };
            if found.is_some() {
                return found;
            }
            before = *byte;
            at = bytes.len() - more.len();
        }
        None
    }
}

fn place(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// The ways in which a part of a value could be written.
fn spellings(part: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8_lossy(part);
    let json = serde_json::to_string(&*text).unwrap_or_default();
    let units = || text.encode_utf16();
    let escape = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_graphic() && !b"\"\\<>&'".contains(&byte) => char::from(byte).to_string(),
        _ => format!("\\u{unit:04x}"),
    };
    let escaped: String = units().map(escape).collect();
    let percent = |kept: &[u8], upper: bool| -> String {
        let written = part.iter().map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || kept.contains(byte) => char::from(*byte).to_string(),
            byte if upper => format!("%{byte:02X}"),
            byte => format!("%{byte:02x}"),
        });
        written.collect()
    };
    let hex: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut all = vec![
        ("plain", part.to_vec()),
        ("reversed", part.iter().rev().copied().collect()),
        ("escaped for JSON", json.trim_matches('"').into()),
        ("escaped for JSON", escaped.into()),
        ("in hexadecimal", hex.to_uppercase().into()),
        ("in hexadecimal", hex.into()),
        ("in UTF-16", units().flat_map(u16::to_le_bytes).collect()),
        ("in UTF-16", units().flat_map(u16::to_be_bytes).collect()),
    ];
    for (kept, upper) in [(&b"-_.~"[..], true), (b"-_.~", false), (b"-_.~!'()*", true), (b"", true)] {
        all.push(("in percent code", percent(kept, upper).into()));
    }
    for (lead, before) in [&b""[..], b"~", b"~~"].into_iter().enumerate() {
        for code in [&STANDARD, &URL_SAFE] {
            // Characters that other bytes have a part in are left out.
            let coded = code.encode([before, part].concat());
            let (from, end) = (if lead == 0 { 0 } else { lead + 1 }, (lead + part.len()) * 8 / 6);
            all.extend(coded.get(from..end).map(|coded| ("in base64", coded.into())));
        }
    }
    all.retain(|(_, spelling)| spelling.len() >= VALUE_BYTES_MIN);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_found_at_any_place() {
        let value = b"s3cr/et+\"va'lue\\ <&>=`~!(*) and more";
        let mut released = Released::default();
        for part in [&value[..24], &value[value.len() - 24..]] {
            released.spellings.extend(spellings(part));
        }
        released.beginnings = vec![u64::MAX; 1 << 10];
        for (name, spelling) in released.spellings.clone() {
            for lead in [0, 1, PAGE_BYTES, 3 * PAGE_BYTES + 7] {
                let text = [&vec![0; lead][..], &spelling, &[0; 3 * PAGE_BYTES]].concat();
                assert!(released.found(&text).is_some(), "{name} after {lead} bytes");
            }
        }
        for lead in 0..3 {
            let text = STANDARD.encode([&b"user:"[..2 + lead], value].concat());
            assert_eq!(released.found(text.as_bytes()), Some("in base64"));
        }
        assert_eq!(released.found(&value[1..20]), None);
        assert_eq!(released.found(&[0; 5 * PAGE_BYTES]), None);
    }

    #[test]
    fn no_spelling_of_the_shortest_values_is_left_out() {
        let long: Vec<_> = spellings(&[b'v'; PART_BYTES]).into_iter().map(|(name, _)| name).collect();
        for length in VALUE_BYTES_MIN..12 {
            let value = &b"s3cr/et+val\""[..length];
            let mut released = Released { spellings: spellings(value), ..Released::default() };
            let named: Vec<_> = released.spellings.iter().map(|(name, _)| *name).collect();
            assert_eq!(named, long, "{length}");
            released.beginnings = vec![u64::MAX; 1 << 10];
            for lead in 0..3 {
                let text = STANDARD.encode([&b"user:"[..2 + lead], value, b"rest"].concat());
                assert_eq!(released.found(text.as_bytes()), Some("in base64"), "{length} after {lead}");
            }
        }
    }
}
