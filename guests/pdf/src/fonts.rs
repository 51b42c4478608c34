//! The fonts of a document: the characters of their codes, and their widths.

use std::sync::Arc;

use hayro_font::hayro_cmap::{BfString, load_embedded};
use hayro_font::{CMapResolverFn, Font, FontCache, FontData, FontGlyph, FontQuery, FontResolverFn};
use hayro_syntax::object::Dict;

/// One code of a string.
pub(crate) struct Shown {
    /// The character; `None` when it is unknown.
    pub(crate) text: Option<BfString>,
    /// The distance to the next character, in thousandths of the font size: right, up.
    pub(crate) advance: (f64, f64),
    /// Whether the code is the single byte 32, to which word spacing applies.
    pub(crate) is_space: bool,
}

/// The fonts of one document, each loaded once.
pub(crate) struct Fonts<'a> {
    cache: FontCache<'a>,
    fonts: FontResolverFn,
    cmaps: CMapResolverFn,
}

impl<'a> Fonts<'a> {
    pub(crate) fn new() -> Self {
        let fonts: FontResolverFn = Arc::new(|query: &FontQuery| -> Option<(FontData, u32)> {
            Some(match query {
                FontQuery::Standard(standard) => standard.get_font_data(),
                FontQuery::Fallback(query) => query.pick_standard_font().get_font_data(),
            })
        });
        Self { cache: FontCache::new(), fonts, cmaps: Arc::new(load_embedded) }
    }

    /// The font of a dictionary, if it can be read.
    pub(crate) fn load(&self, dictionary: &Dict<'a>) -> Option<Font<'a>> {
        self.cache.font(dictionary, &self.fonts, &self.cmaps)
    }
}

/// Splits a string into the codes of a font.
pub(crate) fn codes(font: &Font<'_>, bytes: &[u8]) -> impl Iterator<Item = Shown> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        if offset >= bytes.len() {
            return None;
        }
        let (code, length) = font.read_code(bytes, offset);
        offset += length.max(1);
        let text = match font.glyph(font.map_code(code), code) {
            FontGlyph::Outline(glyph) => glyph.as_unicode(),
            FontGlyph::Type3(glyph) => glyph.as_unicode(),
        };
        let advance = font.code_advance(code);
        Some(Shown { text, advance: (advance.x, advance.y), is_space: length == 1 && code == 32 })
    })
}
