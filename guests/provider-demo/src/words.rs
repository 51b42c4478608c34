//! Splits text into words and tokens. A token is a word or a punctuation mark.

/// The byte offset of each token's end in `text`.
fn token_ends(text: &str) -> impl Iterator<Item = usize> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = rest.find(|(_, character)| !character.is_whitespace())?;
        let mut end = start + first.len_utf8();
        if is_word(first) {
            while let Some((at, next)) = rest.next_if(|(_, next)| is_word(*next)) {
                end = at + next.len_utf8();
            }
        }
        Some(end)
    })
}

/// Whether a character can continue a word. In scripts without spaces (from U+2E80 on) every
/// character is a token of its own.
fn is_word(character: char) -> bool {
    (character.is_alphanumeric() || character == '_') && character < '\u{2e80}'
}

/// How many tokens `text` has.
pub(crate) fn count(text: &str) -> u64 {
    token_ends(text).map(|_| 1).sum()
}

/// The first `limit` tokens of `text`, and the number of these tokens.
pub(crate) fn take(text: &str, limit: u64) -> (&str, u64) {
    let limit_usize = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut taken = 0;
    let mut last = 0;
    for end in token_ends(text).take(limit_usize) {
        (taken, last) = (taken + 1, end);
    }
    if taken < limit { (text, taken) } else { (cut(text, last), taken) }
}

/// Cuts `text` at `end`, unless only white space follows.
fn cut(text: &str, end: usize) -> &str {
    match text.get(end..) {
        Some(rest) if rest.trim().is_empty() => text,
        _ => text.get(..end).unwrap_or(text),
    }
}

/// Splits text into pieces for a stream. Each piece is a word with its punctuation and the space
/// before it. The joined pieces are the text again.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let word = rest.find(|character: char| !character.is_whitespace())?;
        let length = rest.get(word..)?.find(char::is_whitespace).map_or(rest.len(), |length| word + length);
        // White space at the very end belongs to the last piece.
        let blank_behind = rest.get(length..).is_some_and(|behind| behind.trim().is_empty());
        let (piece, behind) = rest.split_at_checked(if blank_behind { rest.len() } else { length })?;
        rest = behind;
        Some(piece)
    })
}

/// The words of `text` in lower case, without apostrophe endings and plural endings, so that
/// `cities` and `City` give the same word.
pub(crate) fn stems(text: &str) -> Vec<String> {
    text.split(|character: char| !character.is_alphanumeric() && character != '\'')
        .flat_map(split_camel_case)
        .map(stem)
        .filter(|word| !word.is_empty())
        .collect()
}

fn split_camel_case(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut previous = false;
        let end = rest.find(|character: char| {
            let boundary = previous && character.is_uppercase();
            previous = character.is_lowercase();
            boundary
        });
        let (head, tail) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = tail;
        Some(head)
    })
}

fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    let word = word.split('\'').next().unwrap_or_default();
    match word.strip_suffix("ies") {
        Some(base) if base.len() > 1 => return format!("{base}y"),
        _ => {}
    }
    match word.strip_suffix('s') {
        Some(base) if base.len() > 2 && !base.ends_with('s') => base.to_owned(),
        _ => word.to_owned(),
    }
}

/// Whether a stem says nothing about the subject of a text.
pub(crate) fn is_filler(stem: &str) -> bool {
    const FILLERS: [&str; 88] = [
        "a", "about", "all", "also", "an", "and", "any", "are", "as", "at", "be", "but", "by", "call", "can",
        "could", "current", "did", "do", "doe", "does", "find", "for", "from", "function", "get", "give",
        "had", "has", "have", "he", "hello", "her", "hi", "him", "how", "i", "if", "in", "into", "is", "it",
        "its", "let", "like", "me", "my", "name", "no", "not", "now", "of", "on", "or", "our", "out",
        "please", "return", "say", "set", "she", "show", "so", "some", "tell", "than", "that", "the",
        "their", "them", "then", "there", "they", "this", "to", "tool", "up", "use", "using", "value",
        "want", "was", "what", "when", "which", "with", "you", "your",
    ];
    stem.len() < 2 || FILLERS.binary_search(&stem).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{count, is_filler, pieces, stems, take};

    #[test]
    fn tokens_are_words_and_marks() {
        let cases = [
            ("", 0),
            ("  ", 0),
            ("Hello, world!", 4),
            ("a_b c1", 2),
            ("{\"k\":1}", 7),
            ("日本語", 3),
            ("é è", 2),
        ];
        for (text, tokens) in cases {
            assert_eq!(count(text), tokens, "{text}");
        }
    }

    #[test]
    fn taking_tokens_cuts_after_the_last() {
        assert_eq!(take("one two, three", 3), ("one two,", 3));
        assert_eq!(take("one two ", 2), ("one two ", 2));
        assert_eq!(take("one two", 9), ("one two", 2));
        assert_eq!(take("one", 0), ("", 0));
    }

    #[test]
    fn pieces_join_to_the_text() {
        for text in ["", "one", " one  two\nthree ", "日本 語 ", "a\u{a0}b"] {
            assert_eq!(pieces(text).collect::<String>(), text, "{text:?}");
        }
        assert_eq!(pieces("one two, three").count(), 3);
        assert_eq!(pieces("   ").count(), 0);
    }

    #[test]
    fn stems_join_forms_of_a_word() {
        assert_eq!(
            stems("getCurrentWeather for Cities, it's"),
            ["get", "current", "weather", "for", "city", "it"]
        );
        assert_eq!(stems("list_files ÄRZTE"), ["list", "file", "ärzte"]);
    }

    #[test]
    fn fillers_are_found_by_binary_search() {
        assert!(["a", "hello", "her", "your", "get", "what", "x"].into_iter().all(is_filler));
        assert!(!["weather", "paris", "add"].into_iter().any(is_filler));
    }
}
