//! Tests of the distribution of drawn orders. Seeds are fixed, so the tests do not depend on chance.

use cofferdam_guest_kit::bindings::routing::Candidate;

use super::{candidate, summary};

use crate::route;

const DRAWS: u64 = 20_000;

fn order(candidates: &[Candidate], seed: u64) -> Vec<u32> {
    route(&summary("{}"), candidates, seed).unwrap().order
}

fn priced(prices: &[f64]) -> Vec<Candidate> {
    prices.iter().map(|price| candidate("p", *price)).collect()
}

/// Pearson's statistic of the counts of outcomes against their probabilities. Outcomes of probability
/// zero must not occur.
fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
    let draws: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let terms = counts.iter().zip(probabilities).map(|(count, probability)| {
        if *probability == 0.0 {
            assert_eq!(*count, 0, "{counts:?}");
            return 0.0;
        }
        let expected = probability * draws;
        (f64::from(*count) - expected).powi(2) / expected
    });
    terms.sum()
}

#[test]
fn first_places_follow_the_inverse_square_of_price() {
    let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
    let cases: [&[f64]; 5] = [&[1.0, 3.0], &[1.0, 2.0, 4.0], &[0.3; 4], &[0.001, 0.002, 0.0015], &twenty];
    for prices in cases {
        let weights: Vec<f64> = prices.iter().map(|price| price.powi(-2)).collect();
        let sum: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        let candidates = priced(prices);
        let mut counts = vec![0; prices.len()];
        for seed in 0..DRAWS {
            counts[order(&candidates, seed)[0] as usize] += 1;
        }
        let statistic = chi_square(&counts, &shares);
        // Exceeded by chance once in a million, with up to 19 degrees of freedom.
        let limit = if prices.len() < 5 { 30.7 } else { 60.0 };
        assert!(statistic < limit, "{prices:?} gave {counts:?}: {statistic}");
    }
}

#[test]
fn whole_orders_are_drawn_as_if_one_after_the_other() {
    let prices = [1.0, 1.5, 2.5];
    let weights = prices.map(|price: f64| price.powi(-2));
    let candidates = priced(&prices);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let sum: f64 = weights.iter().sum();
    let probabilities = orders.map(|[one, two, _]| weights[one] / sum * weights[two] / (sum - weights[one]));
    let mut counts = [0; 6];
    for seed in 0..DRAWS {
        let drawn: Vec<usize> = order(&candidates, seed).iter().map(|index| *index as usize).collect();
        counts[orders.iter().position(|order| *order == drawn[..]).unwrap()] += 1;
    }
    // Exceeded by chance once in a million, with 5 degrees of freedom.
    let statistic = chi_square(&counts, &probabilities);
    assert!(statistic < 35.9, "{counts:?} for {probabilities:?}: {statistic}");
}

#[test]
fn odd_prices_have_sensible_shares() {
    let cases: [(&[f64], &[f64]); 5] = [
        (&[0.0, 0.0, 1.0], &[0.5, 0.5, 0.0]),
        (&[0.0, -1.0, 1e-300], &[0.5, 0.5, 0.0]),
        (&[1e-300, 1e300, f64::NAN], &[1.0, 0.0, 0.0]),
        (&[f64::INFINITY, f64::INFINITY], &[0.5, 0.5]),
        (&[f64::NAN, 1.0], &[0.0, 1.0]),
    ];
    for (prices, shares) in cases {
        let candidates = priced(prices);
        let mut counts = vec![0; prices.len()];
        for seed in 0..DRAWS {
            counts[order(&candidates, seed)[0] as usize] += 1;
        }
        let statistic = chi_square(&counts, shares);
        assert!(statistic < 24.0, "{prices:?} gave {counts:?}: {statistic}");
    }
    // After free endpoints, the paid ones are drawn among themselves.
    let candidates = priced(&[0.0, 1.0, 3.0]);
    let second = (0..DRAWS).filter(|seed| order(&candidates, *seed)[1] == 1).count() as u32;
    let statistic = chi_square(&[second, DRAWS as u32 - second], &[0.9, 0.1]);
    assert!(statistic < 24.0, "{second}: {statistic}");
}

#[test]
fn a_sort_by_speed_tries_unmeasured_endpoints_with_a_small_share() {
    let measured = |provider: &str, latency_ms: f64| {
        let mut candidate = candidate(provider, 1.0);
        candidate.statistics.latency_ms.p50 = latency_ms;
        candidate.statistics.throughput.p50 = 1_000.0 / latency_ms;
        candidate
    };
    let mut failing = candidate("failing", 1.0);
    failing.statistics.outage = true;
    let candidates = [
        measured("fast", 100.0),
        measured("slow", 900.0),
        candidate("new", 1.0),
        candidate("newer", 1.0),
        failing,
    ];
    for sort in ["latency", "throughput"] {
        let mut firsts = [0_u32; 5];
        for seed in 0..DRAWS {
            let request = summary(&format!(r#"{{"sort":"{sort}"}}"#));
            let order = route(&request, &candidates, seed).unwrap().order;
            assert_eq!(order.len(), 5);
            firsts[order[0] as usize] += 1;
        }
        // One in twenty for both together, within five standard deviations.
        let new = firsts[2] + firsts[3];
        assert!((845..=1_155).contains(&new) && firsts[2].abs_diff(firsts[3]) < 160, "{firsts:?}");
        assert_eq!((firsts[1], firsts[4]), (0, 0), "{firsts:?}");
    }
    for preferences in [r#"{"sort":"price"}"#, r#"{"sort":"latency","allow_fallbacks":false}"#] {
        let firsts = (0..DRAWS).map(|seed| route(&summary(preferences), &candidates, seed).unwrap().order[0]);
        assert!(firsts.into_iter().all(|first| first == 0), "{preferences}");
    }
}
