//! Matching of words for searches.

/// The shortest word that may match as a part of another word, in characters.
const PART_CHARS_MIN: usize = 3;

/// The words of `text` in lower case: runs of letters and digits, each word once, at most
/// `count_max` words.
#[must_use]
pub fn lower_words(text: &str, count_max: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let parts = text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in parts {
        if words.len() >= count_max {
            break;
        }
        let word = word.to_lowercase();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// How well `text` matches `word`, both in lower case: 2 when it contains the whole word, 1 when it
/// contains it as a part of another word, otherwise 0. Words below the minimum length match only
/// as a whole, because they are parts of too many other words.
#[must_use]
pub fn grade(text: &str, word: &str) -> u32 {
    if occurs_as_word(text, word) {
        return 2;
    }
    u32::from(word.chars().count() >= PART_CHARS_MIN && text.contains(word))
}

/// Whether `text` contains `word` between characters that are neither letters nor digits. Both
/// are in lower case.
fn occurs_as_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        let after = text.get(start + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_case_and_once() {
        assert_eq!(lower_words("Get-Weather, get FORECAST!", 9), ["get", "weather", "forecast"]);
        assert_eq!(lower_words("a b c", 2), ["a", "b"]);
        assert!(lower_words(" -- ", 9).is_empty());
    }

    #[test]
    fn whole_words_score_higher_than_parts() {
        assert_eq!(grade("get_weather now", "weather"), 2);
        assert_eq!(grade("weathering", "weather"), 1);
        assert_eq!(grade("weathering weather", "weather"), 2);
        assert_eq!(grade("", "weather"), 0);
        assert_eq!((grade("it is", "it"), grade("city", "it")), (2, 0));
    }
}
