//! Service tiers: which endpoints a requested tier may use, and which first.

use crate::bindings::exports::cofferdam::plugin::routing::Candidate;

/// What tiers a model has among the endpoints that may be tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offered {
    flex: bool,
}

impl Offered {
    pub(crate) fn of<'a>(mut candidates: impl Iterator<Item = &'a Candidate>) -> Self {
        Self { flex: candidates.any(|candidate| candidate.tier == "flex") }
    }
}

/// The place of `tier` when the client asked for `requested`, 0 first; `None`
/// when it must not be used.
pub(crate) fn rank(requested: &str, tier: &str, offered: Offered) -> Option<u8> {
    match requested {
        "default" => (tier == "default").then_some(0),
        // Flex is a promise to pay less, so there is no way up while it exists.
        "flex" if offered.flex => (tier == "flex").then_some(0),
        "priority" | "fast" => Some(place(&["priority"], tier)),
        "ultrafast" => Some(place(&["ultrafast", "priority", "default"], tier)),
        _ => Some(place(&["default"], tier)),
    }
}

/// Whether this endpoint was asked for by a tier that is about speed.
pub(crate) fn wants_speed(requested: &str, rank: u8) -> bool {
    matches!(requested, "priority" | "fast") && rank == 0
}

fn place(order: &[&str], tier: &str) -> u8 {
    let place = order.iter().position(|name| *name == tier).unwrap_or(order.len());
    u8::try_from(place).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Offered, rank};

    #[test]
    fn each_requested_tier_has_its_order() {
        let tiers = ["default", "flex", "priority", "ultrafast"];
        let cases = [
            ("auto", true, [Some(0), Some(1), Some(1), Some(1)]),
            ("scale", true, [Some(0), Some(1), Some(1), Some(1)]),
            ("default", true, [Some(0), None, None, None]),
            ("flex", true, [None, Some(0), None, None]),
            ("flex", false, [Some(0), Some(1), Some(1), Some(1)]),
            ("priority", true, [Some(1), Some(1), Some(0), Some(1)]),
            ("fast", true, [Some(1), Some(1), Some(0), Some(1)]),
            ("ultrafast", true, [Some(2), Some(3), Some(1), Some(0)]),
        ];
        for (requested, flex, expected) in cases {
            assert_eq!(
                tiers.map(|tier| rank(requested, tier, Offered { flex })),
                expected,
                "{requested} {flex}"
            );
        }
    }
}
