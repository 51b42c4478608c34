//! Replaces a piece of a text.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::Fields;

use crate::shelf::FILE_BYTES_MAX;

/// A piece of text and its replacement.
pub(crate) struct Edit<'a> {
    old: &'a str,
    new: &'a str,
    everywhere: bool,
}

impl<'a> Edit<'a> {
    pub(crate) fn read(arguments: &'a Fields) -> Result<Self, ToolError> {
        let old = arguments.text("old_text")?.unwrap_or_default();
        if old.is_empty() {
            return Err(arguments.wrong("old_text", "must be a string that is not empty"));
        }
        let new = arguments.text("new_text")?.ok_or_else(|| arguments.wrong("new_text", "is required"))?;
        let everywhere = match arguments.value("everywhere") {
            None => false,
            Some(value) => {
                value.as_bool().ok_or_else(|| arguments.wrong("everywhere", "must be a boolean"))?
            }
        };
        Ok(Self { old, new, everywhere })
    }

    /// The changed text and the number of replacements.
    ///
    /// # Errors
    ///
    /// When the piece does not occur, occurs several times without `everywhere`, or the text becomes
    /// too long.
    pub(crate) fn apply(&self, text: &str, arguments: &Fields) -> Result<(String, usize), ToolError> {
        let count = text.matches(self.old).count();
        match count {
            0 => return Err(arguments.wrong("old_text", "does not occur in the file, to the letter")),
            1 => {}
            _ if self.everywhere => {}
            _ => {
                let takes =
                    format!("occurs {count} times: give more of the text around it, or everywhere = true");
                return Err(arguments.wrong("old_text", &takes));
            }
        }
        // Checked before the text is built: a short piece that occurs often may become a long one.
        let bytes = text.len() - count * self.old.len() + count.saturating_mul(self.new.len());
        if bytes > FILE_BYTES_MAX {
            return Err(ToolError::Failed(format!("A file has at most {FILE_BYTES_MAX} bytes.")));
        }
        Ok((text.replace(self.old, self.new), count))
    }
}
