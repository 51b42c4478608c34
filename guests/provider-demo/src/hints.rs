//! Values in a message that may fill a field: quoted texts, names, numbers.

/// The values found in a message, each kind in the order of the text. A value is removed when it is
/// used, so that two fields do not get the same value while others are left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    /// The whole message.
    pub(crate) text: String,
    quoted: Vec<String>,
    names: Vec<String>,
    numbers: Vec<f64>,
}

impl Hints {
    pub(crate) fn of(message: &str) -> Self {
        let (quoted, rest) = split_quotes(message);
        Self { text: message.trim().to_owned(), quoted, names: names(&rest), numbers: numbers(&rest) }
    }

    /// The next quoted text.
    pub(crate) fn next_quoted(&mut self) -> Option<String> {
        next(&mut self.quoted)
    }

    /// The next run of capitalised words.
    pub(crate) fn next_name(&mut self) -> Option<String> {
        next(&mut self.names)
    }

    /// The next number that `fits` accepts.
    pub(crate) fn next_number(&mut self, fits: impl Fn(f64) -> bool) -> Option<f64> {
        let index = self.numbers.iter().position(|number| fits(*number))?;
        Some(self.numbers.remove(index))
    }

    /// The first word of the message that `fits` accepts, without the punctuation around it.
    pub(crate) fn word(&self, fits: impl Fn(&str) -> bool) -> Option<&str> {
        self.text
            .split(|character: char| {
                character.is_whitespace() || matches!(character, '"' | ',' | ';' | '<' | '>' | '(' | ')')
            })
            .map(|word| word.trim_matches(['.', '?', '!', '\'', ':', '`', '“', '”']))
            .find(|word| fits(word))
    }

    /// Whether the message consists of one name and short words, as in `in New York`.
    pub(crate) fn is_only_a_name(&self) -> bool {
        let [name] = self.names.as_slice() else { return false };
        let rest = self.text.replacen(name.as_str(), "", 1);
        self.quoted.is_empty() && rest.split(|c: char| !c.is_alphanumeric()).all(|word| word.len() <= 3)
    }
}

fn next(things: &mut Vec<String>) -> Option<String> {
    (!things.is_empty()).then(|| things.remove(0))
}

/// Texts in quotation marks, and the message without them.
fn split_quotes(message: &str) -> (Vec<String>, String) {
    let mut quoted = Vec::new();
    let mut outside = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, close, after)) = next_opening(rest) {
        let Some((inside, behind)) = after.split_once(close) else { break };
        outside.push_str(before);
        outside.push(' ');
        if !inside.trim().is_empty() {
            quoted.push(inside.trim().to_owned());
        }
        rest = behind;
    }
    outside.push_str(rest);
    (quoted, outside)
}

/// The text before the next opening mark, the matching closing mark, and the text after it.
fn next_opening(text: &str) -> Option<(&str, char, &str)> {
    let mut before_is_word = false;
    for (at, character) in text.char_indices() {
        let close = match character {
            '"' => Some('"'),
            '`' => Some('`'),
            '“' => Some('”'),
            '«' => Some('»'),
            // After a letter it is an apostrophe.
            '\'' if !before_is_word => Some('\''),
            _ => None,
        };
        before_is_word = character.is_alphanumeric();
        if let Some(close) = close {
            return Some((text.get(..at)?, close, text.get(at + character.len_utf8()..)?));
        }
    }
    None
}

/// Runs of capitalised words. The first word of a sentence does not start a run.
fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    let mut starts_sentence = true;
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|character: char| !character.is_alphanumeric());
        let capital = bare.chars().next().is_some_and(char::is_uppercase) && bare != "I";
        if capital && !(starts_sentence && run.is_empty()) {
            run.push(bare.strip_suffix("'s").unwrap_or(bare));
        }
        let ends = !capital || word.ends_with([',', ';', ':', '.', '?', '!', ')']);
        if ends && !run.is_empty() {
            names.push(std::mem::take(&mut run).join(" "));
        }
        starts_sentence = word.ends_with(['.', '?', '!', ':']);
    }
    names.extend((!run.is_empty()).then(|| run.join(" ")));
    names
}

fn numbers(text: &str) -> Vec<f64> {
    let digits = |character: char| character.is_ascii_digit() || matches!(character, '.' | '-' | '+');
    text.split(|character: char| {
        character.is_whitespace()
            || matches!(character, ',' | ';' | ':' | '(' | ')' | '/' | '*' | '=' | '%' | '$' | '€')
    })
    .map(|word| word.trim_matches(|character: char| !digits(character)).trim_end_matches(['.', '-', '+']))
    .filter(|word| word.contains(|character: char| character.is_ascii_digit()))
    .flat_map(|word| match word.parse::<f64>() {
        Ok(number) => vec![number],
        // `2+3`, `v1.2.3` and the like: every run of digits is a number.
        Err(_) => word
            .split(|character: char| !character.is_ascii_digit())
            .filter_map(|run| run.parse().ok())
            .collect(),
    })
    .filter(|number| number.is_finite())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::Hints;

    #[test]
    fn finds_quotes_names_and_numbers() {
        let hints = Hints::of(
            r#"What's the weather in "Bad Tölz", New York and Paris? Don't add 2 and -3.5, 'x y' (4)."#,
        );
        assert_eq!(hints.quoted, ["Bad Tölz", "x y"]);
        assert_eq!(hints.names, ["New York", "Paris"]);
        assert_eq!(hints.numbers, [2.0, -3.5, 4.0]);
    }

    #[test]
    fn sums_and_versions_give_their_digits() {
        assert_eq!(Hints::of("2+3 is v1.20.3").numbers, [2.0, 3.0, 1.0, 20.0, 3.0]);
    }

    #[test]
    fn a_clause_can_be_only_a_name() {
        for (text, expected) in
            [("in New York?", true), ("London", false), ("the London", true), ("the time in Tokyo", false)]
        {
            assert_eq!(Hints::of(text).is_only_a_name(), expected, "{text}");
        }
    }

    #[test]
    fn unbalanced_quotes_do_not_panic() {
        for text in ["\"", "'a", "“x", "a\"b\"", "``", "«»"] {
            Hints::of(text);
        }
    }
}
