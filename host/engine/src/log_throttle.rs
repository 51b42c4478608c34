//! Limits log lines that clients could cause at will to one a minute for each subject.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines about the same subject.
const PAUSE: Duration = Duration::from_secs(60);
/// The most subjects at once. While all of them are younger than [`PAUSE`], other subjects are not
/// logged.
const THINGS_MAX: usize = 256;

/// When each subject was logged last.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<BTreeMap<String, Instant>>);

impl LogThrottle {
    /// Whether `thing` is to be logged now. If so, counts it as logged.
    pub(crate) fn is_due(&self, thing: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= PAUSE;
        if told.get(thing).is_some_and(|since| !is_old(since)) {
            return false;
        }
        if told.len() >= THINGS_MAX {
            told.retain(|_, since| !is_old(since));
        }
        let has_room = told.len() < THINGS_MAX || told.contains_key(thing);
        if has_room {
            told.insert(thing.to_owned(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_logged_once_a_minute() {
        let (told, start) = (LogThrottle::default(), Instant::now());
        assert!(told.is_due("a", start) && told.is_due("b", start));
        assert!(!told.is_due("a", start + Duration::from_secs(59)));
        assert!(told.is_due("a", start + Duration::from_secs(60)));
        assert!(!told.is_due("a", start + Duration::from_secs(61)));
    }

    #[test]
    fn many_new_subjects_do_not_fill_the_log() {
        let (told, start) = (LogThrottle::default(), Instant::now());
        let count = |at| (0..10_000).filter(|thing| told.is_due(&format!("{thing}"), at)).count();
        assert_eq!(count(start), THINGS_MAX);
        assert_eq!(count(start + PAUSE), THINGS_MAX);
        assert_eq!(told.0.lock().unwrap().len(), THINGS_MAX);
    }
}
