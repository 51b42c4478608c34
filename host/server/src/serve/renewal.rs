//! Takes over a certificate that was renewed. The files of `[server.tls]` are read every two seconds. A certificate and
//! a key that can be served replace the old ones together; anything else is logged, and the old ones stay.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::Clock;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{Problem, TlsFiles};
use crate::tls::{CertificatePair, PairBytes, Tls};

/// The time between two looks at the files.
const ROUND: Duration = Duration::from_secs(2);

/// Runs until stopped.
pub(super) async fn run(app: Arc<App>, tls: Arc<Tls>, clock: Clock, stop: CancellationToken) {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = RefusedPair::default();
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            () = stop.cancelled() => return,
        }
        // A reload may have named other files. One that removed `[server.tls]` waits for the next start.
        let Some(files) = app.live().config.server.tls.clone() else { continue };
        let current = Arc::clone(&tls.current());
        // A disk may hang.
        let looking = tokio::task::spawn_blocking(move || look(&files, &current));
        let look = tokio::select! {
            look = looking => look,
            () = stop.cancelled() => return,
        };
        let Ok(look) = look else { continue };
        let Look { content, pair } = look;
        match pair.and_then(|pair| pair.map(|pair| pair.valid_at(unix_s(&clock))).transpose()) {
            Ok(None) => refused = RefusedPair::default(),
            Ok(Some(pair)) => {
                tls.replace(pair);
                refused = RefusedPair::default();
            }
            Err(problem) if refused.is_second(content) => {
                tracing::error!(error = %problem, "the new certificate is not used, the old one stays");
            }
            Err(_) => {}
        }
    }
}

/// The time in seconds, as certificates have it.
pub(super) fn unix_s(clock: &Clock) -> i64 {
    i64::try_from(clock.now_ms() / 1000).unwrap_or(i64::MAX)
}

/// What was found in the files.
struct Look {
    content: Content,
    /// `None` if it is what is served.
    pair: Result<Option<CertificatePair>, Problem>,
}

/// What tells one state of the files from another: a digest, or why they cannot be read.
type Content = Result<[u8; 32], String>;

fn look(files: &TlsFiles, current: &CertificatePair) -> Look {
    let bytes = match PairBytes::read(files) {
        Ok(bytes) => bytes,
        Err(problem) => return Look { content: Err(problem.message.clone()), pair: Err(problem) },
    };
    let digest = bytes.digest();
    let pair =
        if current.is_of(&digest) { Ok(None) } else { CertificatePair::check(files, &bytes).map(Some) };
    Look { content: Ok(digest), pair }
}

/// The last content that could not be used.
#[derive(Default)]
struct RefusedPair {
    content: Option<Content>,
    is_told: bool,
}

impl RefusedPair {
    /// Whether this content is seen for the second time. The first time may be between the writing of the two files,
    /// and from the third time on it is known.
    fn is_second(&mut self, content: Content) -> bool {
        if self.content.as_ref() != Some(&content) {
            *self = Self { content: Some(content), is_told: false };
            return false;
        }
        !std::mem::replace(&mut self.is_told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::RefusedPair;

    #[test]
    fn a_pair_that_cannot_be_used_is_reported_once_when_it_has_stayed_for_a_round() {
        let mut refused = RefusedPair::default();
        let bad = Ok([1; 32]);
        assert!(!refused.is_second(bad.clone()));
        assert!(refused.is_second(bad.clone()));
        assert!(!refused.is_second(bad.clone()));
        assert!(!refused.is_second(Err("cannot read it".to_owned())));
        assert!(!refused.is_second(bad.clone()));
        assert!(refused.is_second(bad));
    }
}
