//! Estimates the difficulty of a request from counts alone: no model is asked and no text is read. The
//! estimate only moves the choice within a price band, so a wrong estimate costs little.

use cofferdam_guest_kit::bindings::routing::RequestSummary;

use super::TextFacts;

/// The difficulty from 0 (a greeting) to 1 (long work with code, mathematics and tools). It never
/// decreases when a count increases.
pub(super) fn difficulty(request: &RequestSummary, facts: &TextFacts) -> f64 {
    let needs = |ability: &str| request.needs.iter().any(|need| need == ability);
    let signs = [
        // The current message is the strongest indication.
        0.25 * ramp(f64::from(facts.last_user_chars), 2_000.0),
        0.10 * ramp(f64::from(facts.all_chars), 40_000.0),
        0.05 * ramp(f64::from(facts.turns.saturating_sub(1)), 20.0),
        0.05 * ramp(f64::from(facts.questions.saturating_sub(1)), 4.0),
        0.20 * ramp(f64::from(facts.code_blocks), 3.0),
        0.20 * ramp(facts.math_share, 0.1),
        if needs("tools") { 0.10 } else { 0.0 },
        if needs("structured_output") { 0.05 } else { 0.0 },
        // The client itself asks for reasoning.
        if needs("reasoning") { 0.25 } else { 0.0 },
    ];
    signs.iter().sum::<f64>().clamp(0.0, 1.0)
}

/// Rises linearly from 0 to 1, which it reaches at `full`.
fn ramp(value: f64, full: f64) -> f64 {
    if value > 0.0 { (value / full).min(1.0) } else { 0.0 }
}
