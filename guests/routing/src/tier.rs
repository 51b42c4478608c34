//! Service tiers: which endpoints a requested tier may use, and in which order.

use std::collections::BTreeSet;

use cofferdam_guest_kit::bindings::routing::Candidate;

/// The ranks of the models that have flex endpoints among the allowed ones.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    flex: BTreeSet<u32>,
}

impl Offered {
    pub(crate) fn of<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Self {
        let flex = candidates.filter(|candidate| candidate.tier == "flex");
        Self { flex: flex.map(|candidate| candidate.model_rank).collect() }
    }
}

/// The position of the endpoint's tier when the client asked for `requested`, 0 first. `None` when the
/// endpoint must not be used.
pub(crate) fn rank(requested: &str, candidate: &Candidate, offered: &Offered) -> Option<u8> {
    let tier = candidate.tier.as_str();
    match requested {
        "default" => (tier == "default").then_some(0),
        // Flex promises a lower price, so no dearer tier is used while a flex endpoint exists.
        "flex" if offered.flex.contains(&candidate.model_rank) => (tier == "flex").then_some(0),
        "priority" | "fast" => Some(position(&["priority"], tier)),
        "ultrafast" => Some(position(&["ultrafast", "priority", "default"], tier)),
        "scale" => Some(position(&["scale", "default"], tier)),
        _ => Some(position(&["default"], tier)),
    }
}

/// Whether endpoints at this position were requested because they are fast.
pub(crate) fn wants_speed(requested: &str, rank: u8) -> bool {
    match requested {
        "priority" | "fast" => rank == 0,
        "ultrafast" => rank <= 1,
        _ => false,
    }
}

fn position(order: &[&str], tier: &str) -> u8 {
    let position = order.iter().position(|name| *name == tier).unwrap_or(order.len());
    u8::try_from(position).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Offered, rank};
    use crate::tests::candidate;

    #[test]
    fn each_requested_tier_has_its_order() {
        let tiers = ["default", "flex", "priority", "ultrafast", "scale"];
        let cases = [
            ("auto", true, [Some(0), Some(1), Some(1), Some(1), Some(1)]),
            ("new", true, [Some(0), Some(1), Some(1), Some(1), Some(1)]),
            ("default", true, [Some(0), None, None, None, None]),
            ("flex", true, [None, Some(0), None, None, None]),
            ("flex", false, [Some(0), Some(1), Some(1), Some(1), Some(1)]),
            ("priority", true, [Some(1), Some(1), Some(0), Some(1), Some(1)]),
            ("fast", true, [Some(1), Some(1), Some(0), Some(1), Some(1)]),
            ("ultrafast", true, [Some(2), Some(3), Some(1), Some(0), Some(3)]),
            ("scale", true, [Some(1), Some(2), Some(2), Some(2), Some(0)]),
        ];
        for (requested, flex, expected) in cases {
            let of_tier = |tier: &str| {
                let mut candidate = candidate("p", 1.0);
                tier.clone_into(&mut candidate.tier);
                candidate
            };
            let flex_of_model = of_tier("flex");
            let offered = Offered::of(flex.then_some(&flex_of_model).into_iter());
            let ranks = tiers.map(|tier| rank(requested, &of_tier(tier), &offered));
            assert_eq!(ranks, expected, "{requested} {flex}");
        }
    }
}
