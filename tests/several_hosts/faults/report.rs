//! The line of the table.

use super::cluster::Cluster;
use std::time::Duration;

/// Warnings of a host about a commit.
const IN_DOUBT: &str = "a commit is in doubt";
const NO_LONGER: &str = "a commit is no longer in doubt";

/// The middle one and the largest, in milliseconds.
fn middle_and_most(mut times: Vec<Duration>) -> String {
    times.sort();
    let ms =
        |time: Option<&Duration>| time.map_or_else(|| "-".to_owned(), |time| time.as_millis().to_string());
    format!("p50 {} ms, max {} ms", ms(times.get(times.len() / 2)), ms(times.last()))
}

impl Cluster {
    /// Ends the test: prints its line, and fails if something was lost or doubled.
    pub fn report(mut self, fault: &str) {
        super::cluster::blocking(|| self.check_audit());
        let revoked = std::mem::take(&mut *self.told.revoked.lock().unwrap());
        let last_success = revoked.iter().map(|it| it.last_success_ms).max();
        let logs: Vec<String> =
            self.hosts.iter().map(|host| host.log()).chain(self.past_logs.clone()).collect();
        let lines: Vec<&str> = logs.iter().flat_map(|log| log.lines()).collect();
        let count = |wanted: &[&str]| {
            lines.iter().filter(|line| wanted.iter().all(|part| line.contains(part))).count()
        };
        let ended = |is_durable: bool| {
            count(&[NO_LONGER, &format!("\"is_durable\":{is_durable}")])
                + count(&[NO_LONGER, &format!("is_durable={is_durable}")])
        };
        let (begun, done, undone) = (count(&[IN_DOUBT]), ended(true), ended(false));
        println!(
            "{fault}: {} times; {} lost, {} doubled; {begun} commits in doubt: {done} done, {undone} not done, {} ended \
             with their host; answers without an outcome: {} made, {} not made; unavailable {}; {} revocations answered \
             after {}, last success elsewhere {} ms after the answer; {} rows of the last moment before a kill lost; lists stale for {} ms at most",
            self.faults(),
            self.sums.lost.len(),
            self.sums.doubled.len(),
            begun - done - undone,
            self.sums.made,
            self.sums.not_made,
            middle_and_most(self.unavailable.clone()),
            revoked.len(),
            middle_and_most(revoked.iter().map(|it| it.took).collect()),
            last_success.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            self.sums.last_moment,
            self.told.stale.lock().unwrap().as_millis(),
        );
        assert!(self.sums.lost.is_empty(), "{:#?}", self.sums.lost);
        assert!(self.sums.doubled.is_empty(), "{:#?}", self.sums.doubled);
        assert!(last_success.is_none_or(|ms| ms <= 0), "a revoked key was served: {revoked:?}");
    }
}
