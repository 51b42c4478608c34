//! Who may use the admin API: the operator token of the data directory, and bearers that browsers
//! get for it or for a login code. Only hashes are kept in memory. Everything but the token is gone
//! when the process ends.

mod attempts;
mod token_file;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_store::Clock;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use attempts::Attempts;

pub(crate) use token_file::OperatorTokenError;

/// How long a login code works, in seconds.
pub(crate) const CODE_SECONDS: u64 = 60;
const CODE_MS: u64 = CODE_SECONDS * 1000;
/// Login codes that work at the same time; the oldest one makes way.
const CODES_MAX: usize = 8;
/// How long a bearer works, in milliseconds.
const BEARER_MS: u64 = 12 * 60 * 60 * 1000;
/// How long a bearer works without being used, in milliseconds.
const BEARER_IDLE_MS: u64 = 60 * 60 * 1000;
/// Bearers that work at the same time; the one that was used longest ago makes way.
const BEARERS_MAX: usize = 64;
/// The random bytes of a token, a code or a bearer.
const RANDOM_BYTES: usize = 32;

type Hash = [u8; 32];

/// The credentials of operators that this process accepts.
pub(crate) struct Operators {
    clock: Clock,
    accepted: Mutex<Accepted>,
}

struct Accepted {
    token: Hash,
    codes: Vec<LoginCode>,
    bearers: HashMap<Hash, BearerAge>,
    attempts: Attempts,
}

struct LoginCode {
    hash: Hash,
    made_ms: u64,
}

#[derive(Clone, Copy)]
struct BearerAge {
    made_ms: u64,
    used_ms: u64,
}

impl BearerAge {
    fn is_over(self, now_ms: u64) -> bool {
        let over = |from_ms: u64, most: u64| now_ms.saturating_sub(from_ms) >= most;
        over(self.made_ms, BEARER_MS) || over(self.used_ms, BEARER_IDLE_MS)
    }
}

/// Why a credential is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Wrong,
    /// It is wrong, and too many others were in the last minute.
    TooMany {
        wait_s: u64,
    },
}

/// A bearer that was made for a browser.
pub(crate) struct Bearer {
    pub(crate) text: Zeroizing<String>,
    /// How long it works at most, in seconds.
    pub(crate) expires_in_s: u64,
    /// How long it works without being used, in seconds.
    pub(crate) idle_s: u64,
}

/// Checks the token file of a data directory, if there is one.
///
/// # Errors
///
/// The file keeps a host from starting.
pub(crate) fn check_token(data: &Path) -> Result<(), OperatorTokenError> {
    token_file::read(data).map(drop)
}

impl Operators {
    /// Reads the operator token of a data directory, or makes one.
    ///
    /// # Errors
    ///
    /// The file cannot be read or made, or others than its owner may read it.
    pub(crate) fn open(data: &Path, clock: &Clock) -> Result<Self, OperatorTokenError> {
        let token = token_file::read_or_make(data)?;
        let accepted = Accepted {
            token: hash(&token),
            codes: Vec::new(),
            bearers: HashMap::new(),
            attempts: Attempts::default(),
        };
        Ok(Self { clock: clock.clone(), accepted: Mutex::new(accepted) })
    }

    /// Reads the operator token again. If it is another one, codes and bearers end.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`]; the earlier token stays.
    pub(crate) fn reload(&self, data: &Path) -> Result<(), OperatorTokenError> {
        let token = hash(&token_file::read_or_make(data)?);
        let mut accepted = self.lock();
        if accepted.token != token {
            accepted.token = token;
            accepted.codes.clear();
            accepted.bearers.clear();
        }
        Ok(())
    }

    /// Makes a code that can be exchanged for a bearer once.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub(crate) fn login_code(&self) -> Result<Zeroizing<String>, getrandom::Error> {
        let code = random_text()?;
        let now_ms = self.clock.monotonic_ms();
        let mut accepted = self.lock();
        accepted.codes.retain(|code| now_ms.saturating_sub(code.made_ms) < CODE_MS);
        if accepted.codes.len() >= CODES_MAX {
            accepted.codes.remove(0);
        }
        accepted.codes.push(LoginCode { hash: hash(code.as_bytes()), made_ms: now_ms });
        Ok(code)
    }

    /// Exchanges the operator token or a login code for a bearer.
    pub(crate) fn exchange(&self, credential: &str) -> Result<Bearer, ExchangeError> {
        let now_ms = self.clock.monotonic_ms();
        let given = hash(credential.as_bytes());
        let mut accepted = self.lock();
        let code = accepted.codes.iter().position(|code| code.hash == given);
        let is_code = code.is_some_and(|index| {
            let code = accepted.codes.remove(index);
            now_ms.saturating_sub(code.made_ms) < CODE_MS
        });
        if !is_code && accepted.token != given {
            return Err(ExchangeError::Refused(accepted.attempts.refuse(now_ms)));
        }
        let text = random_text()?;
        accepted.bearers.retain(|_, session| !session.is_over(now_ms));
        if accepted.bearers.len() >= BEARERS_MAX {
            let oldest = accepted.bearers.iter().min_by_key(|(_, session)| session.used_ms);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| accepted.bearers.remove(&hash));
        }
        accepted.bearers.insert(hash(text.as_bytes()), BearerAge { made_ms: now_ms, used_ms: now_ms });
        Ok(Bearer { text, expires_in_s: BEARER_MS / 1000, idle_s: BEARER_IDLE_MS / 1000 })
    }

    /// Checks the bearer or the operator token of a request.
    pub(crate) fn check(&self, token: &str) -> Result<(), Refused> {
        let now_ms = self.clock.monotonic_ms();
        let given = hash(token.as_bytes());
        let mut accepted = self.lock();
        if accepted.token == given {
            return Ok(());
        }
        match accepted.bearers.get_mut(&given) {
            Some(session) if !session.is_over(now_ms) => {
                session.used_ms = now_ms;
                Ok(())
            }
            Some(_) => {
                // A page that was left open asks with an old bearer; that is no guess.
                accepted.bearers.remove(&given);
                Err(Refused::Wrong)
            }
            None => Err(accepted.attempts.refuse(now_ms)),
        }
    }

    /// Whether a bearer that was accepted before still works; does not count as a use.
    pub(crate) fn is_live(&self, token: &str) -> bool {
        let given = hash(token.as_bytes());
        let now_ms = self.clock.monotonic_ms();
        let accepted = self.lock();
        accepted.token == given
            || accepted.bearers.get(&given).is_some_and(|session| !session.is_over(now_ms))
    }

    /// Ends a bearer. The operator token stays.
    pub(crate) fn end(&self, token: &str) {
        self.lock().bearers.remove(&hash(token.as_bytes()));
    }

    fn lock(&self) -> MutexGuard<'_, Accepted> {
        // What is accepted stays valid when another thread has panicked.
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why no bearer was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("the credential is refused")]
    Refused(Refused),
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
}

/// Credentials have 256 random bits, so a plain hash cannot be searched, and comparing hashes does
/// not tell by its time how much of a guess is right.
fn hash(credential: &[u8]) -> Hash {
    Sha256::digest(credential).into()
}

fn random_text() -> Result<Zeroizing<String>, getrandom::Error> {
    let mut bytes = Zeroizing::new([0; RANDOM_BYTES]);
    getrandom::fill(bytes.as_mut())?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_ref())))
}

#[cfg(test)]
mod tests;
