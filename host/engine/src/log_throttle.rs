//! Limits log lines that clients could cause at will to one a minute for each subject.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines about the same subject.
const PAUSE: Duration = Duration::from_secs(60);
/// The most subjects at once. While all of them are younger than [`PAUSE`], other subjects are not
/// logged.
const SUBJECTS_MAX: usize = 256;

/// When each subject was logged last.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<BTreeMap<String, Instant>>);

impl LogThrottle {
    /// Whether `subject` is to be logged now. If so, counts it as logged.
    pub(crate) fn is_due(&self, subject: &str, now: Instant) -> bool {
        let mut logged_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= PAUSE;
        if logged_at.get(subject).is_some_and(|since| !is_old(since)) {
            return false;
        }
        if logged_at.len() >= SUBJECTS_MAX {
            logged_at.retain(|_, since| !is_old(since));
        }
        let has_room = logged_at.len() < SUBJECTS_MAX || logged_at.contains_key(subject);
        if has_room {
            logged_at.insert(subject.to_owned(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_logged_once_a_minute() {
        let (logged_at, start) = (LogThrottle::default(), Instant::now());
        assert!(logged_at.is_due("a", start) && logged_at.is_due("b", start));
        assert!(!logged_at.is_due("a", start + Duration::from_secs(59)));
        assert!(logged_at.is_due("a", start + Duration::from_secs(60)));
        assert!(!logged_at.is_due("a", start + Duration::from_secs(61)));
    }

    #[test]
    fn many_new_subjects_do_not_fill_the_log() {
        let (logged_at, start) = (LogThrottle::default(), Instant::now());
        let count = |at| (0..10_000).filter(|subject| logged_at.is_due(&format!("{subject}"), at)).count();
        assert_eq!(count(start), SUBJECTS_MAX);
        assert_eq!(count(start + PAUSE), SUBJECTS_MAX);
        assert_eq!(logged_at.0.lock().unwrap().len(), SUBJECTS_MAX);
    }
}
