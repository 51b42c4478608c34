//! Proofs that this host has asked for an approval. What is asked goes to the client, who keeps it: the store
//! keeps the key alone.

use subtle::ConstantTimeEq;

use super::Store;
use crate::hex;

/// Digits of a proof: fewer than a MAC has, because ids of calls have at most 64 characters with some providers.
pub const APPROVAL_PROOF_DIGITS: usize = 40;

impl Store {
    /// A proof for what is asked, in hexadecimal digits. The parts are told apart: moving a byte from one to the
    /// next gives another proof. It lives as long as the store: another root key changes nothing.
    #[must_use]
    pub fn prove_approval(&self, asked: &[&[u8]]) -> String {
        let mut proof = hex::encode(&self.0.keys.approval_mac(asked));
        proof.truncate(APPROVAL_PROOF_DIGITS);
        proof
    }

    /// Whether this is the proof for what is asked, found out in constant time.
    #[must_use]
    pub fn is_approval_proof(&self, asked: &[&[u8]], proof: &str) -> bool {
        self.prove_approval(asked).as_bytes().ct_eq(proof.as_bytes()).into()
    }
}
