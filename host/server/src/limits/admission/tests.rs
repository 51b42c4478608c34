use std::time::Duration;

use futures_util::FutureExt as _;
use http::HeaderMap;

use super::*;

const NOTHING: RateLimits = RateLimits::UNLIMITED;
/// Run permits without a shortage.
const ROOMY: InstancePermits =
    InstancePermits { taken: 0, held: 0, fairness: Fairness::new(usize::MAX / 16, 1) };

struct Host {
    clock: Clock,
    admission: Admission,
}

/// `A` and `B` are keys of one workspace, `C` is a key of another.
const A: (&str, u8) = ("aaaaaaaaaaaa", 1);
const B: (&str, u8) = ("bbbbbbbbbbbb", 1);
const C: (&str, u8) = ("cccccccccccc", 2);

impl Host {
    fn new() -> Self {
        let clock = Clock::manual();
        Self { admission: Admission::new(&clock, None), clock }
    }

    fn admit(&self, (key, workspace): (&str, u8), rates: &RateLimits) -> Result<Admitted, Box<Limited>> {
        let workspace = format!("00000000-0000-4000-8000-00000000000{workspace}").parse().unwrap();
        let admitted = self.admission.admit(key.parse().unwrap(), workspace, rates, ROOMY);
        admitted.now_or_never().unwrap()
    }

    /// How many requests are admitted one after another.
    fn admitted(&self, who: (&str, u8), rates: &RateLimits) -> usize {
        (0..10_000).take_while(|_| self.admit(who, rates).is_ok()).count()
    }

    fn refused(&self, who: (&str, u8), rates: &RateLimits) -> Box<Limited> {
        match self.admit(who, rates) {
            Ok(_) => panic!("it was let in"),
            Err(limited) => limited,
        }
    }
}

#[test]
fn without_limits_nothing_is_counted_and_no_headers_are_sent() {
    let host = Host::new();
    let admitted = host.admit(A, &NOTHING).unwrap();
    assert_eq!(admitted.shown, None);
    assert_eq!(host.admitted(A, &RateLimits { requests_per_minute: 3, ..NOTHING }), 3);
}

#[test]
fn requests_are_limited_by_key_and_by_workspace() {
    let host = Host::new();
    let rates = RateLimits { requests_per_minute: 6, workspace_requests_per_minute: 10, ..NOTHING };
    assert_eq!(host.admitted(A, &rates), 6);
    let limited = host.refused(A, &rates);
    assert_eq!((limited.resource.name(), limited.wait_s), ("requests_per_minute", 10));
    assert_eq!(host.admitted(B, &rates), 4);
    let limited = host.refused(B, &rates);
    assert_eq!((limited.resource.name(), limited.wait_s), ("workspace_requests_per_minute", 6));
    assert_eq!(host.admitted(C, &rates), 6);
    // The requests that the workspace refused were given back to the key.
    assert_eq!(host.admitted(B, &RateLimits { workspace_requests_per_minute: 0, ..rates }), 2);
}

#[test]
fn request_is_admitted_exactly_after_the_announced_wait() {
    let host = Host::new();
    let rates = RateLimits { requests_per_minute: 7, ..NOTHING };
    host.admitted(A, &rates);
    let wait_s = host.refused(A, &rates).wait_s;
    host.clock.advance(Duration::from_secs(wait_s - 1));
    host.refused(A, &rates);
    host.clock.advance(Duration::from_secs(1));
    host.admit(A, &rates).unwrap();
}

#[test]
fn permit_is_held_until_the_request_ends_and_not_by_a_refused_one() {
    let host = Host::new();
    let rates = RateLimits { concurrent_per_key: 2, requests_per_minute: 3, ..NOTHING };
    let first = host.admit(A, &rates).unwrap();
    let second = host.admit(A, &rates).unwrap();
    let limited = host.refused(A, &rates);
    assert_eq!((limited.resource.name(), limited.wait_s), ("concurrent_per_key", 1));
    host.admit(B, &rates).unwrap();
    drop(first);
    drop(host.admit(A, &rates).unwrap());
    // Now the limit per minute refuses, and each refusal frees its permit again.
    for _ in 0..5 {
        assert_eq!(host.refused(A, &rates).resource.name(), "requests_per_minute");
    }
    drop(second);
}

#[test]
fn key_gets_at_most_its_share_while_few_permits_are_left() {
    let host = Host::new();
    let fairness = Fairness::new(16, 2);
    let admit = |(key, workspace): (&str, u8), taken, held| {
        let workspace = format!("00000000-0000-4000-8000-00000000000{workspace}").parse().unwrap();
        let permits = InstancePermits { taken, held, fairness };
        let admitted = host.admission.admit(key.parse().unwrap(), workspace, &NOTHING, permits);
        admitted.now_or_never().unwrap()
    };
    // Requests without a permit of the runtime count too.
    let mut running: Vec<_> = (0..15).map(|_| admit(A, 0, 0).unwrap()).collect();
    let Err(limited) = admit(A, 0, 0) else { panic!("it was let in") };
    assert_eq!((limited.resource.name(), limited.wait_s, limited.shown.limit), ("streams", 1, 2));
    for _ in 0..3 {
        running.push(admit(B, 0, 0).unwrap());
    }
    assert!(admit(B, 0, 0).is_err(), "it holds more than two");
    running.clear();
    // Several permits of one request count too.
    assert!(admit(A, 15, 3).is_err());
    admit(A, 14, 3).unwrap();
    admit(A, 15, 2).unwrap();
}

#[test]
fn headers_show_the_limit_with_the_smallest_share_left() {
    let host = Host::new();
    let rates = RateLimits { requests_per_minute: 10, workspace_requests_per_minute: 12, ..NOTHING };
    let headers = |shown: RateLimitHeaders| {
        let mut headers = HeaderMap::new();
        shown.write(&mut headers);
        ["limit", "remaining", "reset", "resource"]
            .map(|name| headers[format!("x-ratelimit-{name}")].to_str().unwrap().to_owned())
    };
    let now_ms = host.clock.now_ms();
    let in_ms = |ms: u64| (now_ms + ms).to_string();
    let shown = host.admit(A, &rates).unwrap().shown.unwrap();
    assert_eq!(headers(shown), ["10", "9", &in_ms(6_000), "requests_per_minute"]);
    host.admitted(A, &rates);
    let shown = host.admit(B, &rates).unwrap().shown.unwrap();
    assert_eq!(headers(shown), ["12", "1", &in_ms(55_000), "workspace_requests_per_minute"]);
    let limited = host.refused(A, &rates);
    assert_eq!(headers(limited.shown), ["10", "0", &in_ms(60_000), "requests_per_minute"]);
    let crowd = RateLimits { concurrent_per_key: 1, ..NOTHING };
    let _place = host.admit(A, &crowd).unwrap();
    let limited = host.refused(A, &crowd);
    assert_eq!(headers(limited.shown), ["1", "0", &in_ms(1_000), "concurrent_per_key"]);
}

#[test]
fn refusal_names_the_scope_the_limit_and_the_wait() {
    let host = Host::new();
    let one = Host::new();
    let cases = [
        (
            RateLimits { requests_per_minute: 1, ..NOTHING },
            "Rate limit exceeded: this host allows this API key 1 requests per minute. Try again in 60 s.",
        ),
        (
            RateLimits { workspace_requests_per_minute: 1, ..NOTHING },
            "Rate limit exceeded: this host allows this workspace 1 requests per minute. Try again in 60 s.",
        ),
        (
            RateLimits { concurrent_per_key: 1, ..NOTHING },
            "Rate limit exceeded: this host allows this API key 1 requests at the same time. Try again in 1 s.",
        ),
    ];
    for (rates, message) in cases {
        let _first = host.admit(A, &rates).unwrap();
        assert_eq!(host.refused(A, &rates).message(), message);
    }
    let rates = RateLimits { workspace_requests_per_minute: 1, ..NOTHING };
    one.admit(A, &rates).unwrap();
    let details = one.refused(A, &rates).details();
    assert_eq!(details, json!({"limit": "workspace_requests_per_minute", "scope": "workspace"}));
}

#[test]
fn tokens_are_charged_when_used_and_an_overdraft_must_be_waited_out() {
    let host = Host::new();
    let rates = RateLimits { tokens_per_minute: 1_000, workspace_tokens_per_minute: 1_500, ..NOTHING };
    let tokens = &host.admission.tokens;
    let (key, workspace) = ("aaaaaaaaaaaa".parse().unwrap(), "00000000-0000-4000-8000-000000000001");
    let quota = |per_minute| Quota::of_minute(per_minute).unwrap();
    // Any number of requests is admitted until their usage is known.
    assert_eq!(host.admitted(A, &rates), 10_000);
    tokens.by_key.debit(key, quota(1_000), 1_500);
    let limited = host.refused(A, &rates);
    assert_eq!((limited.resource.name(), limited.wait_s), ("tokens_per_minute", 31));
    host.admit(B, &rates).unwrap();
    tokens.by_workspace.debit(workspace.parse().unwrap(), quota(1_500), 1_500);
    let limited = host.refused(B, &rates);
    assert_eq!((limited.resource.name(), limited.wait_s), ("workspace_tokens_per_minute", 1));
    host.admit(C, &rates).unwrap();
}

/// Two hosts of a store in a database.
#[cfg(feature = "postgres")]
fn hosts_of(address: &cofferdam_test_postgres::Database) -> [cofferdam_store::Store; 2] {
    use cofferdam_store::{Database, DatabaseUrl, OpenOptions, RootKeySource, Secret, Store};
    let folder = tempfile::tempdir().unwrap();
    let root_key = RootKeySource::File(folder.path().join("root.key"));
    let options =
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::manual() };
    let url = format!("postgres://{}@127.0.0.1:{}/{}", address.user, address.port, address.name);
    let (url, password) = (url.parse::<DatabaseUrl>().unwrap(), Secret::from(address.password.clone()));
    let database = Database::new(&url, Some(&password), &[]).unwrap();
    drop(Store::create_in(&database, &options).unwrap());
    [(); 2].map(|()| Store::open_in(&database, &options).unwrap())
}

#[cfg(feature = "postgres")]
#[test]
fn a_seat_that_was_taken_for_a_request_is_there_when_it_begins() {
    if !cofferdam_test_postgres::installed() {
        return;
    }
    let server = cofferdam_test_postgres::Server::shared().unwrap();
    let hosts = hosts_of(&server.database("seat_taken").unwrap());
    let until = |holds: &mut dyn FnMut() -> bool| {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < end);
            std::thread::yield_now();
        }
    };
    let limits = hosts[0].shared_limits().unwrap();
    // Each request needs a seat.
    let (key, most) = (A.0.parse::<KeyId>().unwrap(), 2);
    until(&mut || limits.hosts() == 2);
    let running = Running::new(Some(limits.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let enter = || running.enter_within(key, most, |_, _| Ok(()), || ());
    let mut first = None;
    // Without an answer of the database in time it is let in without a seat.
    until(&mut || {
        first = None;
        first = runtime.block_on(enter()).ok();
        limits.seats(A.0) == 1
    });
    let mut second = Box::pin(enter());
    // While the database does not answer in time, it is let in at once.
    until(&mut || {
        let asks = runtime.block_on(async { futures_util::poll!(&mut second).is_pending() });
        if !asks {
            second = Box::pin(enter());
        }
        asks
    });
    until(&mut || limits.seats(A.0) == 2);
    // The first one ends before the other one learns that it has a seat.
    drop(first);
    let second = runtime.block_on(second);
    assert!(second.is_ok(), "nothing runs");
    assert_eq!(limits.seats(A.0), 1, "the seat of the first one is returned");
    // A request that is given up while it asks leaves no seat behind.
    let third = Box::pin(enter());
    drop(runtime.block_on(async { tokio::time::timeout(Duration::ZERO, third).await }));
    drop(second);
    until(&mut || limits.seats(A.0) == 0);
}
