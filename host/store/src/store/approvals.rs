//! Proofs that this host has asked for an approval, and seeds of sessions. The client keeps the request and
//! its proof; the store keeps only the key they are checked with.

use subtle::ConstantTimeEq;

use super::Store;
use crate::hex;

/// Length of a proof in hexadecimal digits: shorter than a whole MAC, because some providers limit
/// call ids to 64 characters.
pub const APPROVAL_PROOF_DIGITS: usize = 40;

impl Store {
    /// A proof for a request for approval, in hexadecimal digits. Each part is separate: moving a
    /// byte from one part to the next gives another proof. Proofs stay valid for the life of the
    /// store, also after a rotation of the root key.
    #[must_use]
    pub fn prove_approval(&self, asked: &[&[u8]]) -> String {
        let mut proof = hex::encode(&self.0.keys.approval_mac(asked));
        proof.truncate(APPROVAL_PROOF_DIGITS);
        proof
    }

    /// A number for what identifies a session of a client, the same on every host of the store. Nothing of
    /// the session can be recovered from it.
    #[must_use]
    pub fn session_seed(&self, session: &[&[u8]]) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0.keys.session_mac(session);
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Whether this is the proof for the request, compared in constant time.
    #[must_use]
    pub fn is_approval_proof(&self, asked: &[&[u8]], proof: &str) -> bool {
        self.prove_approval(asked).as_bytes().ct_eq(proof.as_bytes()).into()
    }
}
