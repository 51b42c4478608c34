//! The text of a PDF document, page by page, for any guest. Foreign bytes: pages,
//! steps, nesting and what streams unpack to are bounded, and what cannot be read
//! ends in a sentence.

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

/// Most pages that are read.
pub const PAGES_MAX: usize = 500;

/// What there is to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What the document calls itself, at most 300 characters.
    pub title: Option<String>,
    /// Its text, paragraphs and pages with an empty line between them.
    pub text: String,
    /// Whether more text followed.
    pub cut: bool,
}

/// Reads at most `chars_max` characters (Unicode scalar values) of text.
///
/// # Errors
///
/// The document cannot be read, or has no text; the sentence says why and quotes
/// nothing of it.
pub fn read(bytes: &[u8], chars_max: usize) -> Result<Document, &'static str> {
    unpack::check(bytes)?;
    let pdf = Pdf::new(bytes.to_vec()).map_err(|error| match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
            "The PDF is encrypted and needs a password; its text cannot be read."
        }
        LoadPdfError::Decryption(_) => "The PDF is encrypted in a way that cannot be read.",
        LoadPdfError::Invalid => "The PDF is damaged and cannot be read.",
    })?;
    let fonts = Fonts::new();
    let mut budget = Budget::new();
    let mut layout = Layout::new(chars_max);
    for (index, page) in pdf.pages().iter().enumerate() {
        if index >= PAGES_MAX || layout.is_full() || budget.is_spent() {
            layout.cut();
            break;
        }
        layout.begin_page();
        interpret::page(page, &fonts, &mut budget, &mut layout);
    }
    let cut = layout.is_full();
    let text = layout.into_text();
    if text.is_empty() {
        return Err("The PDF holds no text, only pictures or drawings.");
    }
    Ok(Document { title: pdf.metadata().title.as_deref().and_then(title), text, cut })
}

/// A text string of the document: UTF-16 or UTF-8 with a byte order mark, else
/// an encoding that is Latin-1 for nearly all titles.
fn title(bytes: &[u8]) -> Option<String> {
    const CHARS_MAX: usize = 300;
    let text = cofferdam_text::decode(Some("text/plain; charset=windows-1252"), bytes);
    let title =
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    let title = title.collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then(|| cofferdam_text::clip(&title, CHARS_MAX).text.to_owned())
}
