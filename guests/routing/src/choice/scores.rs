//! Coding scores. Catalogs do not have them; the operator may state them in
//! `[plugins.router-auto.config]` as `coding_scores = { "vendor/name*" = 0.8 }`.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;

use super::patterns::{LowerIds, Patterns};
use super::{Model, rank};

/// Patterns of model ids with scores from 0 to 1.
pub(super) struct Scores(Vec<(Patterns, f64)>);

impl Scores {
    /// Reads the operator's configuration. Exact ids come first, then longer patterns: the more
    /// specific entry wins.
    ///
    /// # Errors
    /// The first score that is not a number from 0 to 1.
    pub(super) fn read(operator: &[u8]) -> Result<Self, Failure> {
        let settings = Fields::parse(operator, "plugins.router-auto.config")?;
        let scores = settings.nested("coding_scores")?;
        let mut names: Vec<&str> = scores.members().map(|(name, _)| name).collect();
        names.sort_by_key(|name| (name.contains('*'), std::cmp::Reverse(name.len())));
        let score = |name: &str| {
            let score = scores.number(name, 0.0..=1.0)?.unwrap_or(0.0);
            Ok((Patterns::new([name].into_iter()), score))
        };
        Ok(Self(names.into_iter().map(score).collect::<Result<_, _>>()?))
    }

    /// The score of each model. If the operator states no scores at all, the position by price is
    /// used instead, because dearer models usually code better.
    pub(super) fn of(&self, models: &[Model]) -> Vec<Option<f64>> {
        if self.0.is_empty() {
            return models.iter().map(|model| Some(rank(model))).collect();
        }
        let ids = LowerIds::new(models.iter().map(|model| model.id.as_str()));
        let mut scores = vec![None; models.len()];
        for (patterns, stated) in &self.0 {
            for (score, matched) in scores.iter_mut().zip(patterns.matches(&ids)) {
                *score = score.or(matched.then_some(*stated));
            }
        }
        scores
    }
}
