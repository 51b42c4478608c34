//! A straight line through points, and how sure its slope is.

/// The line of least squares.
pub(crate) struct Trend {
    pub(crate) mean: f64,
    /// From the first x to the last one.
    pub(crate) span: f64,
    slope: f64,
    standard_error: f64,
}

impl Trend {
    /// Of points `[x, y]`. Three are the least that tell how sure a slope is.
    pub(crate) fn of(points: &[[f64; 2]]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&[f64; 2]) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|[x, _]| *x), mean(|[_, y]| *y));
        let spread: f64 = points.iter().map(|[x, _]| (x - mean_x).powi(2)).sum();
        if points.len() < 3 || spread == 0.0 || mean_y == 0.0 {
            return None;
        }
        let slope = points.iter().map(|[x, y]| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
        let rest: f64 = points.iter().map(|[x, y]| (y - mean_y - slope * (x - mean_x)).powi(2)).sum();
        let span = points.last()?[0] - points.first()?[0];
        Some(Self { mean: mean_y, span, slope, standard_error: (rest / (count - 2.0) / spread).sqrt() })
    }

    /// The slope as a share of the mean.
    pub(crate) fn growth(&self) -> f64 {
        self.slope / self.mean
    }

    /// Three standard errors of [`Trend::growth`]. They are wide for a short run.
    pub(crate) fn uncertainty(&self) -> f64 {
        3.0 * self.standard_error / self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::Trend;

    #[test]
    fn a_line_has_its_slope_and_no_uncertainty() {
        let trend = Trend::of(&[[0.0, 100.0], [1.0, 110.0], [2.0, 120.0]]).unwrap();
        assert!((trend.growth() - 10.0 / 110.0).abs() < 1e-9);
        assert!(trend.uncertainty() < 1e-9);
    }

    #[test]
    fn scattered_points_have_a_slope_within_its_uncertainty() {
        let trend = Trend::of(&[[0.0, 100.0], [1.0, 104.0], [2.0, 97.0], [3.0, 101.0]]).unwrap();
        assert!(trend.growth().abs() < trend.uncertainty());
    }

    #[test]
    fn two_points_are_too_few() {
        assert!(Trend::of(&[[0.0, 1.0], [1.0, 2.0]]).is_none());
    }
}
