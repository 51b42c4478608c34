//! Cuts text to a length.

/// Text that was cut to a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clipped<'a> {
    /// The remaining text.
    pub text: &'a str,
    /// Whether something was cut off.
    pub cut: bool,
}

/// The first `chars_max` characters (Unicode scalar values) of `text`.
#[must_use]
pub fn clip(text: &str, chars_max: usize) -> Clipped<'_> {
    // A text has no more characters than bytes, so short texts need no count.
    if text.len() <= chars_max {
        return Clipped { text, cut: false };
    }
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => Clipped { text: text.get(..end).unwrap_or(text), cut: true },
        None => Clipped { text, cut: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_and_never_split() {
        assert_eq!(clip("äöü", 3), Clipped { text: "äöü", cut: false });
        assert_eq!(clip("äöü", 2), Clipped { text: "äö", cut: true });
        assert_eq!(clip("abc", 0), Clipped { text: "", cut: true });
        assert_eq!(clip("", 0), Clipped { text: "", cut: false });
    }
}
