//! The text of a PDF document, page by page.

mod fonts;
mod interpret;
mod layout;
mod unpack;

#[cfg(test)]
mod tests;

use hayro_syntax::{DecryptionError, LoadPdfError, Pdf};

use crate::page::Page;
use fonts::Fonts;
use interpret::Budget;
use layout::Layout;

/// Most pages that are read.
const PAGES_MAX: usize = 500;

/// Reads at most `chars_max` characters of text.
///
/// # Errors
///
/// The document cannot be read, or has no text; the model is told why.
pub(crate) fn read(bytes: &[u8], chars_max: usize) -> Result<Page, &'static str> {
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
    Ok(Page { title: pdf.metadata().title.as_deref().and_then(title), text, cut })
}

/// A text string of the document: UTF-16 or UTF-8 with a byte order mark, else
/// an encoding that is Latin-1 for nearly all titles.
fn title(bytes: &[u8]) -> Option<String> {
    const CHARS_MAX: usize = 300;
    let text = cofferdam_toolbox::decode(Some("text/plain; charset=windows-1252"), bytes);
    let title =
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    let title = title.collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then(|| cofferdam_toolbox::clip(&title, CHARS_MAX).text.to_owned())
}
