//! Extracts the text of a PDF document, page by page, for any guest. The bytes are untrusted: pages,
//! steps, nesting and unpacked sizes are bounded, and a document that cannot be read gives an error
//! message.

mod fonts;
mod interpret;
mod layout;
mod unpack;

#[cfg(test)]
mod tests;

use hayro_syntax::{DecryptionError, LoadPdfError, Pdf};

use fonts::Fonts;
use interpret::Budget;
use layout::Layout;

/// The largest number of pages that are read.
pub const PAGES_MAX: usize = 500;

/// The text of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The title in the document's metadata, at most 300 characters.
    pub title: Option<String>,
    /// The text, with an empty line between paragraphs and pages.
    pub text: String,
    /// Whether a part of the text may be missing because of a limit.
    pub cut: bool,
}

/// Reads at most `chars_max` characters (Unicode scalar values) of text.
///
/// # Errors
///
/// When the document cannot be read or has no text. The message says why and quotes nothing of the
/// document.
pub fn read(bytes: &[u8], chars_max: usize) -> Result<Document, &'static str> {
    read_within(bytes, chars_max, Budget::new())
}

fn read_within(bytes: &[u8], chars_max: usize, mut budget: Budget) -> Result<Document, &'static str> {
    unpack::check(bytes)?;
    let pdf = Pdf::new(bytes.to_vec()).map_err(|error| match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
            "The PDF is encrypted and needs a password; its text cannot be read."
        }
        LoadPdfError::Decryption(_) => "The PDF is encrypted in a way that cannot be read.",
        LoadPdfError::Invalid => "The PDF is damaged and cannot be read.",
    })?;
    let fonts = Fonts::new();
    let mut layout = Layout::new(chars_max);
    for (index, page) in pdf.pages().iter().enumerate() {
        if index >= PAGES_MAX || layout.is_full() || budget.is_spent() {
            layout.cut();
            break;
        }
        layout.begin_page();
        interpret::page(page, &fonts, &mut budget, &mut layout);
    }
    let cut = layout.is_full() || budget.has_skipped();
    let text = layout.into_text();
    if text.is_empty() {
        return Err("The PDF holds no text, only pictures or drawings.");
    }
    Ok(Document { title: pdf.metadata().title.as_deref().and_then(title), text, cut })
}

/// Decodes a title: UTF-16 or UTF-8 with a byte order mark, otherwise an encoding that is Latin-1 for
/// nearly all titles.
fn title(bytes: &[u8]) -> Option<String> {
    const CHARS_MAX: usize = 300;
    let text = cofferdam_text::decode(Some("text/plain; charset=windows-1252"), bytes);
    let title =
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    let title = title.collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then(|| cofferdam_text::clip(&title, CHARS_MAX).text.to_owned())
}
