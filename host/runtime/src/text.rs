//! Characters of texts that operators read.

/// Whether a terminal shows the character as itself: no control character, invisible character, separator of
/// lines and paragraphs, or mark that reorders text.
pub(crate) fn is_shown(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    );
    !character.is_control() && !is_invisible
}
