//! Remembers the endpoint that answered a conversation last, so that the next turn finds its prompt
//! in the cache of that endpoint.
//!
//! A conversation is identified by a hash under a random key of this process. Nothing of the
//! conversation can be recovered from it.

use crate::caller::Caller;
use crate::request::ResponsesRequest;
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a conversation may pause, in milliseconds.
const IDLE_MS: u64 = 600_000;
/// The most conversations in one half of the table.
const HALF_MAX: usize = 50_000;

/// The endpoint that answered each conversation last. At most 100,000 conversations are remembered.
/// When the younger half is full it replaces the older half, so that the least recently answered
/// are forgotten without a search.
pub(crate) struct Sessions {
    hasher: RandomState,
    half_max: usize,
    halves: Mutex<Halves>,
}

#[derive(Default)]
struct Halves {
    young: HashMap<u64, Remembered>,
    old: HashMap<u64, Remembered>,
}

#[derive(Clone, Copy)]
struct Remembered {
    /// The id of the endpoint's health.
    endpoint: u64,
    until_ms: u64,
}

/// One conversation of one account with one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    hash: u64,
    /// Whether the client names its session. Then the conversation stays from the first answer on.
    /// Otherwise it stays only after an answer that was served from a cache, because before that
    /// there is nothing to gain.
    is_named: bool,
    /// The seed of the router, for a session that the client names: every host of a store draws the same
    /// endpoint for it.
    pub(crate) seed: Option<u64>,
}

/// Length of the part of an opening that identifies a conversation, in bytes. Prompts of documents are
/// megabytes long, and hashing one would cost as much as parsing it.
const OPENING_BYTES: usize = 64 * 1024;

/// What identifies a conversation without a name: the head and the length of each of its first messages.
struct Opening<'a>(&'a [Bytes]);

impl Hash for Opening<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for part in self.0 {
            (part.get(..OPENING_BYTES).unwrap_or(part), part.len()).hash(hasher);
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self { hasher: RandomState::new(), half_max: HALF_MAX, halves: Mutex::default() }
    }
}

impl Sessions {
    /// The conversation that a request belongs to; `None` if the client orders providers itself, or
    /// nothing identifies the conversation.
    ///
    /// `requested` is the model as the client wrote it, `header` the value of `x-session-id`. `seed` makes a
    /// seed of what identifies a session with a name.
    pub(crate) fn find(
        &self,
        caller: &Caller,
        requested: &str,
        header: Option<&str>,
        request: &ResponsesRequest,
        seed: impl FnOnce(&[&[u8]]) -> u64,
    ) -> Option<Session> {
        if request.provider.has_order {
            return None;
        }
        // An intern is one account whatever its key, because its keys are replaced. Otherwise the
        // key is the account.
        let key = caller.intern.is_none().then_some(caller.key);
        let account = (caller.workspace.id, caller.intern, key, requested);
        if let Some(named) = request.session_id.as_deref().or(header) {
            let (workspace, intern) = (caller.workspace.id, caller.intern);
            let intern = intern.as_ref().map_or(&[][..], |intern| intern.as_bytes());
            let key = key.map(|key| key.to_string()).unwrap_or_default();
            let parts =
                [workspace.as_bytes(), intern, key.as_bytes(), requested.as_bytes(), named.as_bytes()];
            let hash = self.hasher.hash_one((account, 0, named));
            return Some(Session { hash, is_named: true, seed: Some(seed(&parts)) });
        }
        let hash = match &request.prompt_cache_key {
            Some(key) => self.hasher.hash_one((account, 1, key)),
            None if request.opening.is_empty() => return None,
            None => self.hasher.hash_one((account, 2, Opening(&request.opening))),
        };
        Some(Session { hash, is_named: false, seed: None })
    }

    /// The endpoint that the conversation should stay with, by the id of its health.
    pub(crate) fn endpoint(&self, session: Session, now_ms: u64) -> Option<u64> {
        let halves = self.lock();
        let remembered = halves.young.get(&session.hash).or_else(|| halves.old.get(&session.hash))?;
        (now_ms < remembered.until_ms).then_some(remembered.endpoint)
    }

    /// Records that the endpoint has answered the conversation. `from_cache`: part of the prompt
    /// was in its cache.
    pub(crate) fn answered(&self, session: Session, endpoint: u64, from_cache: bool, now_ms: u64) {
        // Without a name, an answer that used no cache only renews the endpoint that is remembered.
        let stays = session.is_named || from_cache || self.endpoint(session, now_ms) == Some(endpoint);
        if !stays {
            return;
        }
        let mut halves = self.lock();
        if halves.young.len() >= self.half_max && !halves.young.contains_key(&session.hash) {
            halves.old = std::mem::take(&mut halves.young);
        }
        let until_ms = now_ms.saturating_add(IDLE_MS);
        halves.young.insert(session.hash, Remembered { endpoint, until_ms });
    }

    /// Records that the endpoint has failed the conversation, which need not stay with it any more.
    pub(crate) fn failed(&self, session: Session, endpoint: u64) {
        let mut halves = self.lock();
        let Halves { young, old } = &mut *halves;
        // Removed from both halves, because the older one may hold an earlier entry.
        let remembered = young.get(&session.hash).or_else(|| old.get(&session.hash));
        if remembered.is_some_and(|remembered| remembered.endpoint == endpoint) {
            young.remove(&session.hash);
            old.remove(&session.hash);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_store::{Credit, KeyId, Name, Workspace};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn caller(letter: char) -> Caller {
        let key: KeyId = letter.to_string().repeat(12).parse().unwrap();
        let workspace = Workspace {
            id: "6f1c7c0e-58b4-4c8f-9a6e-0a1b2c3d4e5f".parse().unwrap(),
            name: Name::parse("w").unwrap(),
            created_at_ms: 0,
            programme: true,
            vault_writes: true,
            credit: Credit::Unlimited,
        };
        Caller { workspace: workspace.into(), intern: None, key, allowance: Default::default() }
    }

    fn request(fields: &Value) -> ResponsesRequest {
        let mut body = json!({"model": "m", "input": "hello"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ResponsesRequest::parse(&serde_json::to_vec(&body).unwrap(), &[]).unwrap()
    }

    fn session(sessions: &Sessions, header: Option<&str>, fields: &Value) -> Option<Session> {
        sessions.find(&caller('a'), "m", header, &request(fields), |_| 7)
    }

    #[test]
    fn the_first_present_session_key_counts() {
        let sessions = Sessions::default();
        let find = |header, fields: Value| session(&sessions, header, &fields).unwrap();
        let body = find(Some("h"), json!({"session_id": "s", "prompt_cache_key": "c"}));
        assert_eq!(body, find(None, json!({"session_id": "s", "input": "other"})));
        let header = find(Some("h"), json!({"prompt_cache_key": "c"}));
        assert_eq!(header, find(Some("h"), json!({"input": "other"})));
        let cache_key = find(None, json!({"prompt_cache_key": "c"}));
        assert_eq!(cache_key, find(None, json!({"prompt_cache_key": "c", "input": "other"})));
        let opening = find(None, json!({}));
        let hashes = [body, header, cache_key, opening].map(|session| session.hash);
        let distinct: std::collections::BTreeSet<u64> = hashes.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        assert!(body.is_named && header.is_named && !cache_key.is_named && !opening.is_named);
    }

    #[test]
    fn a_conversation_is_identified_by_its_opening() {
        let sessions = Sessions::default();
        let turn = |role: &str, text: &str| json!({"role": role, "content": text});
        let find = |items: &[Value]| session(&sessions, None, &json!({"input": items})).unwrap();
        let first = find(&[turn("system", "be brief"), turn("user", "hello")]);
        let second = find(&[
            turn("system", "be brief"),
            turn("user", "hello"),
            turn("assistant", "hi"),
            turn("user", "and now?"),
        ]);
        assert_eq!(first, second);
        assert_ne!(first, find(&[turn("system", "be long"), turn("user", "hello")]));
        assert_ne!(first, find(&[turn("system", "be brief"), turn("user", "hi")]));
    }

    #[test]
    fn a_long_opening_is_identified_by_its_head_and_length() {
        let sessions = Sessions::default();
        let find = |text: &str| session(&sessions, None, &json!({"input": text})).unwrap();
        let long = "a".repeat(OPENING_BYTES);
        let first = find(&format!("{long}b"));
        assert_eq!(first, find(&format!("{long}c")));
        assert_ne!(first, find(&format!("{long}bb")));
        assert_ne!(first, find(&format!("b{long}")));
    }

    #[test]
    fn sessions_differ_by_account_and_model_and_an_order_disables_them() {
        let sessions = Sessions::default();
        let named = request(&json!({"session_id": "s"}));
        let of = |letter, model: &str| sessions.find(&caller(letter), model, None, &named, |_| 7).unwrap();
        assert_eq!(of('a', "m"), of('a', "m"));
        assert_ne!(of('a', "m"), of('b', "m"));
        assert_ne!(of('a', "m"), of('a', "n"));
        let ordered = json!({"session_id": "s", "provider": {"order": ["p"]}});
        assert_eq!(session(&sessions, None, &ordered), None);
    }

    #[test]
    fn a_named_session_stays_from_its_first_answer_on() {
        let sessions = Sessions::default();
        let session = session(&sessions, None, &json!({"session_id": "s"})).unwrap();
        assert_eq!(sessions.endpoint(session, 0), None);
        sessions.answered(session, 7, false, 0);
        assert_eq!(sessions.endpoint(session, 1), Some(7));
    }

    #[test]
    fn an_unnamed_conversation_stays_after_a_cache_hit() {
        let sessions = Sessions::default();
        let session = session(&sessions, None, &json!({})).unwrap();
        sessions.answered(session, 7, false, 0);
        assert_eq!(sessions.endpoint(session, 0), None);
        sessions.answered(session, 7, true, 0);
        assert_eq!(sessions.endpoint(session, 0), Some(7));
        sessions.answered(session, 8, false, 0);
        assert_eq!(sessions.endpoint(session, 0), Some(7), "8 has nothing of it");
        sessions.answered(session, 7, false, 300_000);
        assert_eq!(sessions.endpoint(session, 899_999), Some(7), "each answer renews it");
    }

    #[test]
    fn a_session_ends_after_ten_idle_minutes() {
        let sessions = Sessions::default();
        let session = session(&sessions, None, &json!({"session_id": "s"})).unwrap();
        sessions.answered(session, 7, false, 0);
        assert_eq!(sessions.endpoint(session, 599_999), Some(7));
        assert_eq!(sessions.endpoint(session, 600_000), None);
    }

    #[test]
    fn a_session_ends_with_a_failure_of_its_own_endpoint_only() {
        let sessions = Sessions::default();
        let session = session(&sessions, None, &json!({"session_id": "s"})).unwrap();
        sessions.answered(session, 7, false, 0);
        sessions.failed(session, 8);
        assert_eq!(sessions.endpoint(session, 0), Some(7));
        sessions.failed(session, 7);
        assert_eq!(sessions.endpoint(session, 0), None);
    }

    proptest! {
        /// However many conversations come, the table is bounded and contains the last ones.
        #[test]
        fn the_table_is_bounded(hashes in proptest::collection::vec(0u64..60, 1..300)) {
            let sessions = Sessions { half_max: 8, ..Sessions::default() };
            for (now_ms, hash) in hashes.into_iter().enumerate() {
                let session = Session { hash, is_named: true, seed: None };
                sessions.answered(session, hash, false, now_ms as u64);
                prop_assert_eq!(sessions.endpoint(session, now_ms as u64), Some(hash));
                let halves = sessions.lock();
                prop_assert!(halves.young.len() + halves.old.len() <= 16);
            }
        }
    }
}
