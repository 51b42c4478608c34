//! Counts the searches and results of a request. Stored as `SEARCHES RESULTS` in scratch.

use cofferdam_guest_kit::bindings::tools::ToolError;

use crate::settings::Settings;

/// The counts so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    searches: u32,
    results: usize,
}

impl Spent {
    /// Reads the stored counts. Only this tool writes them. Counts that cannot be read are treated as
    /// the limit.
    pub(crate) fn read(kept: Option<&[u8]>) -> Self {
        let Some(kept) = kept else { return Self::default() };
        let numbers = std::str::from_utf8(kept).ok().and_then(|text| text.split_once(' '));
        let read = |(searches, results): (&str, &str)| {
            Some(Self { searches: searches.parse().ok()?, results: results.parse().ok()? })
        };
        numbers.and_then(read).unwrap_or(Self { searches: u32::MAX, results: usize::MAX })
    }

    /// The form in which the counts are stored.
    pub(crate) fn write(self) -> Vec<u8> {
        format!("{} {}", self.searches, self.results).into_bytes()
    }

    /// The largest number of results for one more search.
    ///
    /// # Errors
    ///
    /// When a limit is reached; the message is for the model.
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

    /// The counts after one more search.
    pub(crate) fn search(self) -> Self {
        Self { searches: self.searches.saturating_add(1), ..self }
    }

    /// The counts after `count` more results.
    pub(crate) fn results(self, count: usize) -> Self {
        Self { results: self.results.saturating_add(count), ..self }
    }
}
