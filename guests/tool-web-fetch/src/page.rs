//! The readable text of a response.

/// The text of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) title: Option<String>,
    pub(crate) text: String,
    /// Whether the text was cut.
    pub(crate) cut: bool,
}
