//! Finds endpoints that do far worse than the others of their model, so that they are avoided for a
//! while even if their own failures do not open the breaker.

/// A failure rate this much above that of the others makes an outlier.
const SHARE_ABOVE: f64 = 0.25;
/// A latency this many times that of the others makes an outlier, if it is also
/// [`LATENCY_ABOVE_MS`] above it.
const LATENCY_TIMES: f64 = 4.0;
/// In milliseconds.
const LATENCY_ABOVE_MS: f64 = 1_000.0;

/// What is compared of one endpoint of a model. `None` means not measured often enough.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointSample {
    /// Only endpoints of the same tier are compared: the tiers of a provider differ on purpose.
    pub(super) tier: String,
    /// The share of failed requests, 0 to 1.
    pub(super) failed_share: Option<f64>,
    /// Milliseconds to the first content of streams, and to the end of other answers.
    pub(super) latency_ms: [Option<f64>; 2],
    /// Whether it is avoided already, for any reason.
    pub(super) is_ejected: bool,
}

/// The indexes of the endpoints to avoid now. At most half of a model's endpoints are avoided at a
/// time, including those that were before.
pub(super) fn outliers(peers: &[EndpointSample]) -> Vec<usize> {
    let ejected = peers.iter().filter(|peer| peer.is_ejected).count();
    let room = (peers.len() / 2).saturating_sub(ejected);
    let mut worst: Vec<(f64, usize)> = (0..peers.len())
        .filter_map(|index| {
            let excess = excess(peers, index)?;
            (excess >= 1.0).then_some((excess, index))
        })
        .collect();
    worst.sort_by(|one, other| other.0.total_cmp(&one.0));
    worst.into_iter().take(room).map(|(_, index)| index).collect()
}

/// How far an endpoint is off, where 1 is just too far. `None` for one that is avoided already.
fn excess(peers: &[EndpointSample], index: usize) -> Option<f64> {
    let peer = peers.get(index).filter(|peer| !peer.is_ejected)?;
    let others = |value: &dyn Fn(&EndpointSample) -> Option<f64>| {
        let others = peers.iter().enumerate().filter(|(other, _)| *other != index);
        let alike = others.filter(|(_, other)| !other.is_ejected && other.tier == peer.tier);
        median(alike.filter_map(|(_, other)| value(other)).collect())
    };
    let share = |peer: &EndpointSample| peer.failed_share;
    let mut worst = match (share(peer), others(&share)) {
        (Some(own), Some(others)) => (own - others) / SHARE_ABOVE,
        _ => 0.0,
    };
    for kind in 0..peer.latency_ms.len() {
        let latency = |peer: &EndpointSample| peer.latency_ms.get(kind).copied().flatten();
        if let (Some(own), Some(others)) = (latency(peer), others(&latency)) {
            let far = (own / (others * LATENCY_TIMES)).min((own - others) / LATENCY_ABOVE_MS);
            worst = worst.max(far);
        }
    }
    Some(worst)
}

/// The lower median.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failing(share: f64) -> EndpointSample {
        EndpointSample { failed_share: Some(share), ..EndpointSample::default() }
    }

    fn slow(latency_ms: f64) -> EndpointSample {
        EndpointSample {
            failed_share: Some(0.0),
            latency_ms: [Some(latency_ms), None],
            ..EndpointSample::default()
        }
    }

    #[test]
    fn an_endpoint_that_fails_far_more_often_is_an_outlier() {
        assert_eq!(outliers(&[failing(0.01), failing(0.4), failing(0.02)]), [1]);
        assert_eq!(outliers(&[failing(0.4), failing(0.35), failing(0.45)]), [] as [usize; 0]);
        assert_eq!(outliers(&[failing(0.0), failing(0.3)]), [1]);
    }

    #[test]
    fn an_endpoint_that_is_far_slower_is_an_outlier() {
        assert_eq!(outliers(&[slow(300.0), slow(350.0), slow(2_500.0)]), [2]);
        assert_eq!(
            outliers(&[slow(10.0), slow(12.0), slow(90.0)]),
            [] as [usize; 0],
            "a difference of 80 ms is below the least one"
        );
    }

    #[test]
    fn endpoints_of_different_tiers_are_not_compared() {
        let flex = EndpointSample { tier: "flex".to_owned(), ..slow(20_000.0) };
        assert!(outliers(&[slow(300.0), slow(300.0), flex]).is_empty());
    }

    #[test]
    fn a_single_measured_endpoint_is_not_an_outlier() {
        assert!(outliers(&[failing(1.0)]).is_empty());
        assert!(outliers(&[failing(1.0), EndpointSample::default()]).is_empty());
        assert!(outliers(&[]).is_empty());
    }

    #[test]
    fn the_worst_are_chosen_first_and_at_least_half_stay() {
        let peers = [failing(0.3), failing(0.9), failing(0.5), failing(0.0), failing(0.0), failing(0.0)];
        assert_eq!(outliers(&peers), [1, 2, 0]);
        let mut peers = peers;
        peers[1].is_ejected = true;
        peers[3].is_ejected = true;
        assert_eq!(outliers(&peers), [2]);
    }

    fn peer() -> impl Strategy<Value = EndpointSample> {
        let share = proptest::option::of(0.0f64..=1.0);
        let latency = || proptest::option::of(1.0f64..1e6);
        (share, latency(), latency(), any::<bool>(), 0u8..2).prop_map(
            |(failed_share, streamed, whole, is_ejected, tier)| EndpointSample {
                tier: tier.to_string(),
                failed_share,
                latency_ms: [streamed, whole],
                is_ejected,
            },
        )
    }

    proptest! {
        /// However bad all are, at most half are avoided, and none is chosen twice.
        #[test]
        fn at_most_half_are_avoided(peers in proptest::collection::vec(peer(), 0..20)) {
            let chosen = outliers(&peers);
            let before = peers.iter().filter(|peer| peer.is_ejected).count();
            prop_assert!(chosen.is_empty() || before + chosen.len() <= peers.len() / 2);
            prop_assert!(chosen.iter().all(|index| !peers[*index].is_ejected));
            let distinct: std::collections::BTreeSet<_> = chosen.iter().collect();
            prop_assert_eq!(distinct.len(), chosen.len());
        }
    }
}
