//! Converts between a router's bindings and the types of `cofferdam-routing`. Compiled into each router,
//! because every world has generated types of its own.

use cofferdam_routing as rules;

use crate::bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use crate::bindings::exports::cofferdam::plugin::routing as wit;

/// Orders candidates by the rules.
pub(crate) fn route(
    summary: wit::RequestSummary,
    candidates: Vec<wit::Candidate>,
    seed: u64,
) -> Result<wit::Decision, Failure> {
    let candidates: Vec<rules::Candidate> = candidates.into_iter().map(candidate).collect();
    match rules::route(&request(summary), &candidates, seed) {
        Ok(rules::Decision { order, strategy, reason }) => {
            Ok(wit::Decision { order, strategy: strategy.to_owned(), reason })
        }
        Err(rules::Refusal::NothingLeft(message)) => Err(failure(ErrorKind::NotFound, message)),
        Err(rules::Refusal::Malformed(malformed)) => {
            Err(failure(ErrorKind::InvalidRequest, malformed.to_string()))
        }
    }
}

/// The part of a request that the rules read.
pub(crate) fn request(summary: wit::RequestSummary) -> rules::Request {
    let named = |model: &String| summary.requested.starts_with(model.as_str());
    rules::Request {
        models: summary.models.len(),
        chosen: !summary.models.first().is_some_and(named),
        suffix: summary.suffix,
        preferences: summary.preferences,
        route: summary.route,
        service_tier: summary.service_tier,
        parameters: summary.parameters,
        needs: summary.needs,
        input_tokens: summary.input_tokens,
        max_output_tokens: summary.max_output_tokens,
        sticky: summary.sticky,
    }
}

pub(crate) fn price(price: wit::Price) -> rules::Price {
    rules::Price { input: price.input, output: price.output, image: price.image }
}

pub(crate) fn failure(kind: ErrorKind, message: String) -> Failure {
    Failure { kind, message, code: None, retry_after_ms: None }
}

fn candidate(candidate: wit::Candidate) -> rules::Candidate {
    rules::Candidate {
        model_rank: candidate.model_rank,
        provider: candidate.provider,
        tier: candidate.tier,
        price: price(candidate.price),
        context_length: candidate.context_length,
        max_output: candidate.max_output,
        supports: candidate.supports,
        quantization: candidate.quantization,
        zdr: candidate.zdr,
        data_collection: candidate.data_collection,
        byok: candidate.byok,
        statistics: statistics(candidate.statistics),
    }
}

fn statistics(statistics: wit::Statistics) -> rules::Statistics {
    let percentiles =
        |wit::Percentiles { p50, p75, p90, p99 }: wit::Percentiles| rules::Percentiles { p50, p75, p90, p99 };
    rules::Statistics {
        latency_ms: percentiles(statistics.latency_ms),
        throughput: percentiles(statistics.throughput),
        requests: statistics.requests,
        failures: statistics.failures,
        outage: statistics.outage,
        ejected: statistics.ejected,
    }
}
