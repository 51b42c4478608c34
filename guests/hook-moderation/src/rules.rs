//! The operator's own rules.

use crate::operator::Rules;
use crate::{Flagged, Texts};

/// The first text that a rule forbids, with the reasons of all rules that match it, without
/// duplicates.
pub(crate) fn flagged(rules: &Rules, texts: &Texts) -> Option<Flagged> {
    if rules.is_empty() {
        return None;
    }
    texts.iter().find_map(|text| {
        let matches = rules.patterns.matches(&text.text);
        let mut reasons: Vec<String> = Vec::new();
        for reason in matches.iter().filter_map(|position| rules.reasons.get(position)) {
            if !reasons.contains(reason) {
                reasons.push(reason.clone());
            }
        }
        (!reasons.is_empty()).then(|| Flagged { reasons, pointer: texts.pointer(text.position) })
    })
}
