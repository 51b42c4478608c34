//! What a host tells about itself in its row, for operators and before the root key is replaced.
//!
//! It has a proof under a key of the store and is bound to the id of the host. Who can write to the
//! database and has no root key can neither claim a host nor change what one tells.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq;

use super::host::HostId;
use super::schema;
use crate::clock::Clock;
use crate::hex;
use crate::hosts::HostFacts;
use crate::seal::StoreKeys;

/// The member of the text that has the proof.
const PROOF: &str = "proof";

/// The newest schema that hosts know which tell nothing of it.
const FIRST_TOLD: u32 = 2;

/// What this process tells about itself.
pub(crate) struct About {
    keys: Arc<StoreKeys>,
    clock: Clock,
    /// Whether it serves requests, in contrast to a command.
    serves: bool,
    /// Digest of what must be equal on all hosts.
    configuration: Mutex<Option<String>>,
}

impl About {
    pub(crate) fn new(keys: Arc<StoreKeys>, clock: Clock, serves: bool) -> About {
        About { keys, clock, serves, configuration: Mutex::default() }
    }

    /// Sets the digest of the configuration. The next beat tells it.
    pub(crate) fn set_configuration(&self, digest: String) {
        *self.configuration.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest);
    }

    /// The text for the row of a host.
    pub(super) fn text(&self, id: HostId) -> String {
        let machine = rustix::system::uname();
        let root_keys: Vec<String> = self.keys.ring().configured().iter().map(ToString::to_string).collect();
        let facts = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "schema": schema::NEWEST,
            "machine": machine.nodename().to_string_lossy(),
            "process": std::process::id(),
            "serves": self.serves,
            "beat_at_ms": self.clock.now_ms(),
            "root_keys": root_keys,
            "configuration": *self.configuration.lock().unwrap_or_else(PoisonError::into_inner),
        });
        let body = facts.to_string();
        let proof = hex::encode(&self.keys.host_mac(&id.0, body.as_bytes()));
        let mut whole = facts;
        if let Some(members) = whole.as_object_mut() {
            members.insert(PROOF.to_owned(), proof.into());
        }
        whole.to_string()
    }
}

impl std::fmt::Debug for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("About").field("serves", &self.serves).finish_non_exhaustive()
    }
}

/// Reads the text of a row. What has no proof is shown, and is not relied on.
pub(super) fn read(keys: &StoreKeys, id: HostId, text: &str, now_ms: u64) -> HostFacts {
    let mut facts: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let proof = facts.shift_remove(PROOF);
    let expected = keys.host_mac(&id.0, Value::Object(facts.clone()).to_string().as_bytes());
    let proof = proof.as_ref().and_then(Value::as_str).and_then(hex::decode);
    let is_proven = proof.is_some_and(|proof| bool::from(proof.as_slice().ct_eq(&expected)));
    let text = |name: &str| facts.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| facts.get(name).and_then(Value::as_u64);
    let root_keys = facts.get("root_keys").and_then(Value::as_array).filter(|_| is_proven);
    HostFacts {
        id: id.to_string(),
        version: text("version").unwrap_or_default(),
        schema: number("schema")
            .filter(|_| is_proven)
            .and_then(|it| it.try_into().ok())
            .unwrap_or(FIRST_TOLD),
        machine: text("machine").unwrap_or_default(),
        process: number("process"),
        // Earlier versions do not tell it.
        serves: facts.get("serves").and_then(Value::as_bool).unwrap_or(true),
        beat_age_ms: number("beat_at_ms").map(|at_ms| now_ms.saturating_sub(at_ms)),
        root_keys: root_keys.into_iter().flatten().filter_map(|id| id.as_str()?.parse().ok()).collect(),
        configuration: text("configuration"),
        is_proven,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StoreId;
    use crate::root_key::RootKey;

    #[test]
    fn what_a_host_tells_is_believed_only_with_a_proof_for_its_id() {
        let keys = Arc::new(StoreKeys::random(StoreId::random().unwrap()).unwrap());
        let root = RootKey::random().unwrap();
        keys.change_ring(|ring| ring.add_configured(root.wrap_key()));
        let about = About::new(Arc::clone(&keys), Clock::manual(), true);
        about.set_configuration("a digest".to_owned());
        let (id, other) = (HostId([1; 16]), HostId([2; 16]));
        let text = about.text(id);
        let found = read(&keys, id, &text, 5);
        assert!(found.is_proven && found.serves);
        assert_eq!((found.root_keys, found.configuration.as_deref()), (vec![root.id()], Some("a digest")));
        assert_eq!((&*found.version, found.schema), (env!("CARGO_PKG_VERSION"), schema::NEWEST));
        let not_ours = StoreKeys::random(keys.store_id()).unwrap();
        let edited = text.replace(&root.id().to_string(), &RootKey::random().unwrap().id().to_string());
        for (keys, id, text) in [
            (&*keys, other, text.as_str()),
            (&not_ours, id, &text),
            (&*keys, id, &edited),
            (&*keys, id, "{}"),
        ] {
            let found = read(keys, id, text, 5);
            assert!(!found.is_proven && found.root_keys.is_empty(), "{text}");
        }
    }
}
