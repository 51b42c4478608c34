//! The rate and concurrency limits of `[limits]` for inference, by key and by workspace. They are
//! checked when the caller is authenticated, before the body is read. A request is admitted by all
//! limits, or it uses up none of them. The tokens a request uses are charged when it ends, so until
//! then running requests can overdraw the token limits.

use std::sync::Arc;

use cofferdam_engine::limits::rate::{Quota, Rate, RateKey, Standing, Taken, TooOften};
use cofferdam_engine::{Allowance, AnswerCounts, Running, TokenLimits};
use cofferdam_runtime::{Fairness, InstancePermits};
use cofferdam_store::{Clock, KeyId, SharedLimits, WorkspaceId};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::config::RateLimits;

/// The wait sent to clients for a limit that depends on other requests ending, in seconds.
const PERMIT_WAIT_S: u64 = 1;

/// The current usage of all keys and workspaces.
pub(crate) struct Admission {
    clock: Clock,
    requests: Rate<KeyId>,
    workspace_requests: Rate<WorkspaceId>,
    tokens: Arc<TokenLimits>,
    running: Running<KeyId>,
    answers: Arc<AnswerCounts>,
}

#[derive(Default)]
pub(crate) struct Admitted {
    /// What the request may use. Holds its permit among the running requests.
    pub(crate) allowance: Allowance,
    /// The rate limit headers, when a limit applies.
    pub(crate) shown: Option<RateLimitHeaders>,
}

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited {
    resource: LimitedResource,
    /// The rate limit headers.
    pub(crate) shown: RateLimitHeaders,
    /// How long to wait, in seconds.
    pub(crate) wait_s: u64,
}

/// The limits. All but `BodyBytes`, which is fixed, are named like their keys in `[limits]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitedResource {
    /// The key's share of the host's run permits, enforced while few are left.
    Streams,
    /// The key's share of the memory for request bodies, enforced while little is left.
    BodyBytes,
    ConcurrentPerKey,
    TokensPerMinute,
    WorkspaceTokensPerMinute,
    RequestsPerMinute,
    WorkspaceRequestsPerMinute,
}

impl LimitedResource {
    fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::BodyBytes => "body_bytes",
            Self::ConcurrentPerKey => "concurrent_per_key",
            Self::TokensPerMinute => "tokens_per_minute",
            Self::WorkspaceTokensPerMinute => "workspace_tokens_per_minute",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::WorkspaceRequestsPerMinute => "workspace_requests_per_minute",
        }
    }

    /// Whether the limit belongs to the key or to the workspace.
    fn scope(self) -> &'static str {
        match self {
            Self::Streams
            | Self::BodyBytes
            | Self::ConcurrentPerKey
            | Self::TokensPerMinute
            | Self::RequestsPerMinute => "key",
            Self::WorkspaceTokensPerMinute | Self::WorkspaceRequestsPerMinute => "workspace",
        }
    }

    /// The unit of the limit, as it reads in the error message.
    fn units(self) -> &'static str {
        match self {
            Self::Streams => "requests while the host has little room",
            Self::BodyBytes => "bytes of request bodies while the host has little room",
            Self::ConcurrentPerKey => "requests at the same time",
            Self::TokensPerMinute | Self::WorkspaceTokensPerMinute => "tokens per minute",
            Self::RequestsPerMinute | Self::WorkspaceRequestsPerMinute => "requests per minute",
        }
    }
}

impl Admission {
    /// `shared` where several hosts have the limits together.
    #[must_use]
    pub(crate) fn new(clock: &Clock, shared: Option<&SharedLimits>) -> Self {
        Self {
            clock: clock.clone(),
            requests: Rate::new(clock, "requests", shared.cloned()),
            workspace_requests: Rate::new(clock, "workspace-requests", shared.cloned()),
            tokens: Arc::new(TokenLimits::new(clock, shared)),
            running: Running::new(shared.cloned()),
            answers: Arc::default(),
        }
    }

    /// How admitted requests ended.
    pub(crate) fn answers(&self) -> &AnswerCounts {
        &self.answers
    }

    /// Admits a request: takes one request from the limits of key and workspace, and a permit among
    /// the running requests. Where hosts share the limits, this may wait for the database.
    ///
    /// # Errors
    ///
    /// [`Limited`]; then nothing was taken.
    pub(crate) async fn admit(
        &self,
        key: KeyId,
        workspace: WorkspaceId,
        rates: &RateLimits,
        permits: InstancePermits,
    ) -> Result<Admitted, Box<Limited>> {
        let now_ms = self.clock.now_ms();
        let most = rates.concurrent_per_key;
        let full = || Limited::full(LimitedResource::ConcurrentPerKey, most, now_ms);
        let may_enter = |own, all| match most {
            1.. if own >= most => Err(full()),
            _ => is_fair(permits, own, all)
                .map_err(|share| Limited::full(LimitedResource::Streams, share, now_ms)),
        };
        let permit = self.running.enter_within(key, most, may_enter, full).await?;
        if *rates == RateLimits::UNLIMITED {
            return Ok(Admitted {
                allowance: Allowance::new(permit, &self.answers, &self.tokens, None, None),
                shown: None,
            });
        }
        let mut tightest = Tightest { now_ms, found: None, refused: None };
        let of_key = Quota::of_minute(rates.tokens_per_minute).map(|quota| (key, quota));
        let of_workspace =
            Quota::of_minute(rates.workspace_tokens_per_minute).map(|quota| (workspace, quota));
        if let Some((key, quota)) = of_key {
            tightest.meet(LimitedResource::TokensPerMinute, self.tokens.by_key.check(key, quota).await);
        }
        if let Some((workspace, quota)) = of_workspace {
            let checked = self.tokens.by_workspace.check(workspace, quota).await;
            tightest.meet(LimitedResource::WorkspaceTokensPerMinute, checked);
        }
        self.take_request(key, workspace, rates, &mut tightest).await;
        if let Some(refused) = tightest.refused {
            return Err(refused);
        }
        let allowance = Allowance::new(permit, &self.answers, &self.tokens, of_key, of_workspace);
        Ok(Admitted { allowance, shown: tightest.shown() })
    }

    /// Takes one request from the limits of key and workspace. After a refusal the limits that follow are only asked
    /// how long they would have the client wait.
    async fn take_request(
        &self,
        key: KeyId,
        workspace: WorkspaceId,
        rates: &RateLimits,
        tightest: &mut Tightest,
    ) {
        let mut from_key = None;
        if let Some(quota) = Quota::of_minute(rates.requests_per_minute) {
            let resource = LimitedResource::RequestsPerMinute;
            from_key = tightest.take(resource, &self.requests, key, quota).await;
        }
        if let Some(quota) = Quota::of_minute(rates.workspace_requests_per_minute) {
            let resource = LimitedResource::WorkspaceRequestsPerMinute;
            // If the workspace refuses, or the client leaves during the wait, the unit of the key goes back.
            let taken = tightest.take(resource, &self.workspace_requests, workspace, quota).await;
            taken.into_iter().for_each(Taken::keep);
        }
        if tightest.refused.is_none() {
            from_key.into_iter().for_each(Taken::keep);
        }
    }
}

/// Whether a key may run one more request. A request that still waits for its body has no permit of
/// the runtime yet, and one that runs tools has several, so the larger of the two counts is used.
///
/// # Errors
///
/// The key's share of the permits, if the key holds more than that and few are left.
fn is_fair(permits: InstancePermits, own: u64, all: u64) -> Result<(), u64> {
    let count = |running: u64| usize::try_from(running).unwrap_or(usize::MAX);
    let InstancePermits { taken, held, fairness } = permits;
    if fairness.refuses(taken.max(count(all)), held.max(count(own))) {
        return Err(fairness.share() as u64);
    }
    Ok(())
}

/// Finds the limit of which the smallest fraction is left: it is the one shown in the headers. Of limits that refuse, the
/// one with the longest wait is shown, because the client is refused until then.
struct Tightest {
    now_ms: u64,
    found: Option<(LimitedResource, Standing)>,
    refused: Option<Box<Limited>>,
}

impl Tightest {
    /// Takes one unit, or only checks the limit where another one has refused.
    async fn take<'r, K: RateKey>(
        &mut self,
        resource: LimitedResource,
        rate: &'r Rate<K>,
        who: K,
        quota: Quota,
    ) -> Option<Taken<'r, K>> {
        if self.refused.is_some() {
            self.meet(resource, rate.check(who, quota).await);
            return None;
        }
        let taken = rate.take(who, quota).await;
        self.meet(resource, taken.as_ref().map(Taken::standing).map_err(|refused| *refused));
        taken.ok()
    }

    fn meet(&mut self, resource: LimitedResource, met: Result<Standing, TooOften>) {
        let standing = match met {
            Ok(standing) => standing,
            Err(TooOften { wait_s, standing }) => {
                if self.refused.as_ref().is_none_or(|refused| refused.wait_s < wait_s) {
                    let shown = RateLimitHeaders::of(resource, standing, self.now_ms);
                    self.refused = Some(Box::new(Limited { resource, shown, wait_s }));
                }
                return;
            }
        };
        // Compares the fractions `remaining / limit` without division.
        let share = |one: Standing, other: Standing| u128::from(one.remaining) * u128::from(other.limit);
        if self.found.is_none_or(|(_, found)| share(standing, found) < share(found, standing)) {
            self.found = Some((resource, standing));
        }
    }

    fn shown(&self) -> Option<RateLimitHeaders> {
        self.found.map(|(resource, standing)| RateLimitHeaders::of(resource, standing, self.now_ms))
    }
}

impl Limited {
    /// The key holds all that it may hold at the same time. It has to wait until its own requests
    /// end.
    fn full(resource: LimitedResource, most: u64, now_ms: u64) -> Box<Self> {
        let reset_ms = now_ms.saturating_add(PERMIT_WAIT_S * 1000);
        let shown = RateLimitHeaders { resource: resource.name(), limit: most, remaining: 0, reset_ms };
        Box::new(Self { resource, shown, wait_s: PERMIT_WAIT_S })
    }

    /// The key holds more than its share of the memory for bodies, and little is left.
    pub(crate) fn by_bodies(fairness: Fairness, now_ms: u64) -> Box<Self> {
        Self::full(LimitedResource::BodyBytes, fairness.share() as u64, now_ms)
    }

    /// The message for the client: which limit, and when to try again.
    pub(crate) fn message(&self) -> String {
        let Self { resource, shown: RateLimitHeaders { limit, .. }, wait_s } = self;
        let who = if resource.scope() == "key" { "API key" } else { "workspace" };
        let units = resource.units();
        format!("Rate limit exceeded: this host allows this {who} {limit} {units}. Try again in {wait_s} s.")
    }

    /// Further members of `error.metadata`.
    pub(crate) fn details(&self) -> Value {
        json!({"limit": self.resource.name(), "scope": self.resource.scope()})
    }
}

/// The `X-RateLimit-*` headers of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitHeaders {
    /// [`LimitedResource::name`] of the limit.
    resource: &'static str,
    limit: u64,
    /// How much was left after this request was admitted.
    remaining: u64,
    /// When the limit is completely free again if no other request comes: Unix milliseconds.
    reset_ms: u64,
}

impl RateLimitHeaders {
    fn of(resource: LimitedResource, standing: Standing, now_ms: u64) -> Self {
        // Rounded up, so that the limit is really free at that time.
        let whole_in_ms = u64::try_from(standing.whole_in.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self {
            resource: resource.name(),
            limit: standing.limit,
            remaining: standing.remaining,
            reset_ms: now_ms.saturating_add(whole_in_ms),
        }
    }

    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Self { resource, limit, remaining, reset_ms } = self;
        let mut write = |name, value| headers.insert(HeaderName::from_static(name), value);
        write("x-ratelimit-limit", HeaderValue::from(limit));
        write("x-ratelimit-remaining", HeaderValue::from(remaining));
        write("x-ratelimit-reset", HeaderValue::from(reset_ms));
        write("x-ratelimit-resource", HeaderValue::from_static(resource));
    }
}

#[cfg(test)]
mod tests;
