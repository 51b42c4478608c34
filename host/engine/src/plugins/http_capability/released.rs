//! The secrets that were sent for the plugins of one request. The outputs of the plugins are
//! searched for their values once more.
//!
//! An answer is searched for known spellings when it arrives. But a plugin decodes answers: a host
//! that spells a value in another character set, or escapes its letters in JSON, could have the
//! plugin restore it.

use cofferdam_egress::{Credential, GuestRequest, PlacedSecret, SentSecret, SentSecrets};
use cofferdam_runtime::services::SentSearch;
use cofferdam_runtime::wire::{Action, Failure, Function, Output};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The most different groups of secrets that are sent for one plugin in one request.
pub(super) const GROUPS_MAX: usize = 64;

/// What was sent in one request, by plugin.
#[derive(Default)]
pub(super) struct Released(Mutex<BTreeMap<String, Vec<SentSecrets>>>);

/// A search for all secrets that were sent for one plugin.
pub(crate) struct ReleasedSearch {
    groups: Vec<SentSecrets>,
    /// Each once.
    found: Vec<SentSecret>,
}

impl Released {
    /// Whether secrets of these names may be sent together for this plugin, as far as that is known before their
    /// values are.
    pub(super) fn may_take(&self, plugin: &str, secrets: &[PlacedSecret]) -> bool {
        let is_of = |known: &SentSecrets| {
            let names = known.secrets.iter().map(|sent| &sent.name);
            names.eq(secrets.iter().map(|placed| &placed.secret))
        };
        self.with(|groups| {
            let Some(groups) = groups.get(plugin) else { return true };
            groups.len() < GROUPS_MAX || groups.iter().any(is_of)
        })
    }

    /// Records secrets that are about to be sent together for this plugin. `false` where they must not be sent,
    /// because they could not be searched for.
    #[must_use]
    pub(super) fn take(&self, plugin: &str, sent: &SentSecrets) -> bool {
        if sent.values.is_empty() {
            return true;
        }
        self.with(|groups| {
            let groups = groups.entry(plugin.to_owned()).or_default();
            if groups.iter().any(|known| has_same_values(known, sent)) {
                return true;
            }
            let has_room = groups.len() < GROUPS_MAX;
            if has_room {
                groups.push(sent.clone());
            }
            has_room
        })
    }

    /// A search for what was sent for this plugin; `None` if nothing was.
    pub(super) fn search(&self, plugin: &str) -> Option<ReleasedSearch> {
        let groups = self.with(|groups| groups.get(plugin).cloned().unwrap_or_default());
        (!groups.is_empty()).then_some(ReleasedSearch { groups, found: Vec::new() })
    }

    fn with<T>(&self, then: impl FnOnce(&mut BTreeMap<String, Vec<SentSecrets>>) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether both are the same secrets, sent to any host.
fn has_same_values(one: &SentSecrets, other: &SentSecrets) -> bool {
    let identity = |sent: &SentSecret| (sent.name.clone(), sent.fingerprint);
    one.secrets.iter().map(identity).eq(other.secrets.iter().map(identity))
}

impl ReleasedSearch {
    /// The secrets that were found so far, each once.
    pub(crate) fn found(&self) -> &[SentSecret] {
        &self.found
    }

    /// Removes the values from the output of a tool.
    pub(crate) fn output(&mut self, output: Output) -> Output {
        let Output { for_model, item, annotations, cost_pico } = output;
        Output {
            for_model: self.text(for_model),
            item: self.json(item),
            annotations: annotations.into_iter().map(|annotation| self.json(annotation)).collect(),
            cost_pico,
        }
    }

    /// Looks for the values in a request that the plugin wrote, which cannot be sent without them.
    pub(super) fn request(&mut self, request: GuestRequest) {
        let GuestRequest { target, headers, body, .. } = request;
        let body = String::from_utf8_lossy(&body).into_owned();
        let headers = headers.into_iter().flat_map(|(name, value)| [name, value]);
        for text in headers.chain([target.as_str().to_owned(), body]) {
            drop(self.text(text));
        }
    }

    /// Removes the values from the definition of a function, which models see. `None` where its name has
    /// one: calls are matched by the name, so it cannot be changed.
    pub(crate) fn function(&mut self, function: Function) -> Option<Function> {
        let Function { name, description, parameters } = function;
        if self.text(name.clone()) != name {
            return None;
        }
        Some(Function { name, description: self.text(description), parameters: self.json(parameters) })
    }

    /// Removes the values from the action of a hook.
    pub(crate) fn action(&mut self, action: Action) -> Action {
        match action {
            Action::Pass => Action::Pass,
            Action::Replace(json) => Action::Replace(self.json(json)),
            Action::Reject(failure) => Action::Reject(self.failure(failure)),
        }
    }

    /// Removes the values from the texts of a failure.
    pub(crate) fn failure(&mut self, failure: Failure) -> Failure {
        let code = failure.code.map(|code| self.text(code));
        Failure { message: self.text(failure.message), code, ..failure }
    }

    /// Removes the values from a text. JSON in the text may have escaped letters. Where a value is
    /// found only in the unescaped text, the unescaped text is returned.
    pub(crate) fn text(&mut self, text: String) -> String {
        let text = self.scrub(&text).unwrap_or(text);
        let plain = unescaped(&text).and_then(|plain| self.scrub(&plain));
        plain.unwrap_or(text)
    }

    fn scrub(&mut self, text: &str) -> Option<String> {
        let mut clean: Option<String> = None;
        for group in &self.groups {
            let text = clean.as_deref().unwrap_or(text);
            if let Some((scrubbed, found)) = group.scrub(text.as_bytes()) {
                clean = Some(String::from_utf8_lossy(&scrubbed).into_owned());
                add(&mut self.found, found);
            }
        }
        clean
    }

    /// Removes the values from JSON. Returns the same bytes where nothing is found, and `{}` where a value cannot be
    /// cut out, because it is a number or contains a part of the syntax.
    pub(crate) fn json(&mut self, json: Vec<u8>) -> Vec<u8> {
        let found_before = std::mem::take(&mut self.found);
        let written = String::from_utf8_lossy(&json).into_owned();
        // The text also has members that a later one of the same name hides from the parser.
        drop(self.text(written.clone()));
        let written = self.scrub(&written).unwrap_or(written);
        let clean = serde_json::from_str::<Value>(&written).map(|value| self.value(value).to_string());
        let found = std::mem::replace(&mut self.found, found_before);
        let json = match clean {
            _ if found.is_empty() => json,
            Ok(clean) if !self.finds(&clean) => clean.into_bytes(),
            _ => b"{}".to_vec(),
        };
        add(&mut self.found, found);
        json
    }

    fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => values.into_iter().map(|value| self.value(value)).collect(),
            Value::Object(members) => {
                let clean = |(name, value)| (self.text(name), self.value(value));
                Value::Object(members.into_iter().map(clean).collect::<Map<_, _>>())
            }
            value => value,
        }
    }
}

impl SentSearch for ReleasedSearch {
    fn finds(&self, text: &str) -> bool {
        let plain = unescaped(text);
        let texts = [Some(text), plain.as_deref()];
        self.groups
            .iter()
            .any(|group| texts.iter().flatten().any(|text| group.values.occurs_in(text.as_bytes())))
    }
}

/// A search for the credential of a provider.
pub(crate) struct CredentialSearch(pub(crate) Credential);

impl SentSearch for CredentialSearch {
    fn finds(&self, text: &str) -> bool {
        let is_in = |text: &str| self.0.occurs_in(text.as_bytes());
        is_in(text) || unescaped(text).is_some_and(|plain| is_in(&plain))
    }
}

fn add(all: &mut Vec<SentSecret>, found: Vec<SentSecret>) {
    for sent in found {
        if !all.contains(&sent) {
            all.push(sent);
        }
    }
}

/// Undoes JSON escapes of letters that need no escape; `None` where the text has no such escapes.
fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('\\');
    let mut plain = parts.next()?.to_owned();
    let mut has_escapes = false;
    for part in parts {
        match escaped_letter(part) {
            Some((letter, rest)) => {
                has_escapes = true;
                plain.push(letter);
                plain.push_str(rest);
            }
            None => plain.extend(["\\", part]),
        }
    }
    has_escapes.then_some(plain)
}

/// Decodes what follows a backslash, if it is such an escape: the letter, and the rest of the text.
fn escaped_letter(part: &str) -> Option<(char, &str)> {
    if let Some(rest) = part.strip_prefix('/') {
        return Some(('/', rest));
    }
    let (digits, rest) = part.strip_prefix('u')?.split_at_checked(4)?;
    // `from_str_radix` would accept a sign.
    let digits = Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    Some((char::from_u32(u32::from_str_radix(digits, 16).ok()?)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use cofferdam_egress::ScrubSet;
    use proptest::prelude::*;
    use serde_json::json;

    const VALUE: &str = "very-secret-0123456789";

    fn search() -> ReleasedSearch {
        search_for(VALUE)
    }

    fn search_for(value: &'static str) -> ReleasedSearch {
        let values = ScrubSet::new([("key", Bytes::from_static(value.as_bytes()))]);
        let sent =
            SentSecret { name: "key".parse().unwrap(), host: "api.test".parse().unwrap(), fingerprint: None };
        ReleasedSearch { groups: vec![SentSecrets { secrets: [sent].into(), values }], found: Vec::new() }
    }

    fn escaped(text: &str) -> String {
        text.chars().map(|letter| format!("\\u{:04x}", u32::from(letter))).collect()
    }

    #[test]
    fn values_are_removed_from_texts_and_json_with_any_escapes() {
        let mut search = search();
        let output = search.output(Output {
            for_model: format!("{{\"a\":\"{}\"}}", escaped(VALUE)),
            item: format!("{{\"{}\":[{{\"b\":\"x {}\"}}]}}", escaped(VALUE), escaped(VALUE)).into_bytes(),
            annotations: vec![json!({ "url": VALUE }).to_string().into_bytes(), b"{ \"n\" : 1 }".to_vec()],
            cost_pico: 7,
        });
        assert_eq!(search.found().len(), 1);
        assert_eq!(output.for_model, "{\"a\":\"[secret:key]\"}");
        assert_eq!(output.item, br#"{"[secret:key]":[{"b":"x [secret:key]"}]}"#);
        assert_eq!(output.annotations, [br#"{"url":"[secret:key]"}"#.to_vec(), b"{ \"n\" : 1 }".to_vec()]);
        assert_eq!(output.cost_pico, 7);
    }

    #[test]
    fn values_are_removed_from_json_wherever_they_stand() {
        let item = |value: &'static str, json: &str| {
            let mut search = search_for(value);
            let json = search.json(json.as_bytes().to_vec());
            (String::from_utf8(json).unwrap(), search.found().len())
        };
        let twice = format!("{{\"k\":\"{VALUE}\",\"k\":1}}");
        assert_eq!(item(VALUE, &twice), ("{\"k\":1}".to_owned(), 1), "a member that a later one hides");
        let escaped = twice.replace("very", "v\\u0065r\\u0079");
        assert_eq!(item(VALUE, &escaped), ("{\"k\":1}".to_owned(), 1), "the same with escapes");
        let number = "{\"n\":-1234567890.50}";
        assert_eq!(item("1234567890.50", number), ("{}".to_owned(), 1), "a number");
        let account = "{\"type\":\"account\",\"key\":[1,2]}";
        let given = format!("{{\"a\":{account}}}");
        assert_eq!(item(account, &given), ("{}".to_owned(), 1), "a value that is JSON itself");
    }

    #[test]
    fn a_function_with_a_value_in_its_name_is_left_out() {
        let mut search = search();
        let function = |name: &str| Function {
            name: name.to_owned(),
            description: escaped(VALUE),
            parameters: b"{}".to_vec(),
        };
        assert!(search.function(function(&format!("calc__{VALUE}"))).is_none());
        assert_eq!(search.found().len(), 1);
        let kept = search.function(function("calc__add")).unwrap();
        assert_eq!((kept.name.as_str(), kept.description.as_str()), ("calc__add", "[secret:key]"));
    }

    #[test]
    fn surrogates_and_broken_escapes_are_kept() {
        for (text, plain) in [
            ("a\\/b\\u0063", Some("a/bc")),
            ("\\u00e9\\ud83d\\ude00", Some("é\\ud83d\\ude00")),
            ("\\u00\\u+041\\uzzzz\\", None),
            ("\\ué\\n", None),
        ] {
            assert_eq!(unescaped(text).as_deref(), plain, "{text}");
        }
    }

    proptest! {
        /// A value is found in any text, whichever of its letters are escaped.
        #[test]
        fn values_are_found_whichever_letters_are_escaped(
            choice in proptest::collection::vec(any::<bool>(), VALUE.len()),
            before in "\\PC{0,20}",
            after in "\\PC{0,20}",
        ) {
            let written: String = VALUE.chars().zip(choice).map(|(letter, escape)| {
                if escape { format!("\\u{:04X}", u32::from(letter)) } else { letter.to_string() }
            }).collect();
            let mut search = search();
            let clean = search.text(format!("{before}{written}{after}"));
            prop_assert_eq!(search.found().len(), 1);
            prop_assert!(clean.contains("[secret:key]"), "{}", clean);
        }

        /// Input without a value stays the same, byte for byte.
        #[test]
        fn input_without_a_value_is_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..64), text in "\\PC{0,40}") {
            let mut search = search();
            prop_assert_eq!(search.json(bytes.clone()), bytes);
            prop_assert_eq!(search.text(text.clone()), text);
            prop_assert!(search.found().is_empty());
        }
    }
}
