//! How many searches and results a request has had. Kept as `SEARCHES RESULTS` in its scratch.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::ToolError;

use crate::settings::Settings;

/// The counts so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    searches: u32,
    results: usize,
}

impl Spent {
    /// Reads what was kept. Nobody else writes there: what cannot be read counts as all used up.
    pub(crate) fn read(kept: Option<&[u8]>) -> Self {
        let Some(kept) = kept else { return Self::default() };
        let numbers = std::str::from_utf8(kept).ok().and_then(|text| text.split_once(' '));
        let read = |(searches, results): (&str, &str)| {
            Some(Self { searches: searches.parse().ok()?, results: results.parse().ok()? })
        };
        numbers.and_then(read).unwrap_or(Self { searches: u32::MAX, results: usize::MAX })
    }

    /// What is to be kept.
    pub(crate) fn write(self) -> Vec<u8> {
        format!("{} {}", self.searches, self.results).into_bytes()
    }

    /// The most results of one more search.
    ///
    /// # Errors
    ///
    /// There is none left; the model is told so.
    pub(crate) fn room(self, settings: &Settings) -> Result<usize, ToolError> {
        let all = |count: usize, what: &str| {
            let message =
                format!("All {count} {what} of this request are used up. Answer from what you have.");
            Err(ToolError::Failed(message))
        };
        if self.searches >= settings.uses_max {
            return all(settings.uses_max as usize, "searches");
        }
        match settings.total_results_max.saturating_sub(self.results) {
            0 => all(settings.total_results_max, "search results"),
            room => Ok(room.min(settings.results_max)),
        }
    }

    /// With one more search.
    pub(crate) fn search(self) -> Self {
        Self { searches: self.searches.saturating_add(1), ..self }
    }

    /// With more results.
    pub(crate) fn results(self, count: usize) -> Self {
        Self { results: self.results.saturating_add(count), ..self }
    }
}
