//! What a model looks for: words, or a regular expression.

use cofferdam_toolbox::{clip, grade, lower_words};
use regex_lite::{Regex, RegexBuilder};

use crate::deferred::Deferred;

/// Longest regular expression, in characters.
const PATTERN_CHARS_MAX: usize = 200;
/// Longest query of words, in characters; further ones are not looked for.
const WORDS_CHARS_MAX: usize = 1_000;
const WORDS_MAX: usize = 32;
/// What a compiled expression may take: `(a{1000}){1000}` is short to write.
const COMPILED_BYTES_MAX: usize = 256 * 1024;
/// Nesting of groups.
const NESTING_MAX: u32 = 32;
/// How much of one text is matched: the engine takes time in proportion to the
/// text times the expression.
const MATCHED_CHARS_MAX: usize = 2_000;

/// Characters that no plain words have. A point, a hyphen or a question mark do.
const PATTERN_SIGNS: [char; 11] = ['\\', '^', '$', '|', '*', '+', '(', ')', '[', ']', '{'];

/// A query that was understood.
pub(crate) enum Query {
    Words(Vec<String>),
    Pattern(Regex),
}

impl Query {
    /// Reads a query: with a sign of regular expressions in it it is one, else
    /// its words are looked for. Letter case does not matter in either.
    ///
    /// # Errors
    ///
    /// What is wrong, for the model.
    pub(crate) fn parse(query: &str) -> Result<Self, String> {
        if !query.contains(PATTERN_SIGNS) && !query.contains(".?") {
            let words = lower_words(clip(query, WORDS_CHARS_MAX).text, WORDS_MAX);
            if words.is_empty() {
                return Err("query must hold at least one word".to_owned());
            }
            return Ok(Self::Words(words));
        }
        if clip(query, PATTERN_CHARS_MAX).cut {
            return Err(format!("query is a regular expression of more than {PATTERN_CHARS_MAX} characters"));
        }
        let built = RegexBuilder::new(query)
            .case_insensitive(true)
            .size_limit(COMPILED_BYTES_MAX)
            .nest_limit(NESTING_MAX)
            .build();
        built.map(Self::Pattern).map_err(|error| format!("query is not a regular expression: {error}"))
    }

    /// How well a tool matches; zero is not at all. A name counts more than a
    /// description, a whole word more than a part of one.
    pub(crate) fn score(&self, tool: &Deferred) -> u32 {
        match self {
            Self::Words(words) => score_of_words(words, tool),
            Self::Pattern(pattern) => {
                let matches = |text: &str| pattern.is_match(clip(text, MATCHED_CHARS_MAX).text);
                u32::from(matches(&tool.name)) * 8
                    + u32::from(matches(&tool.description)) * 3
                    + u32::from(matches(&tool.parameters))
            }
        }
    }
}

fn score_of_words(words: &[String], tool: &Deferred) -> u32 {
    let name = tool.name.to_lowercase();
    let description = tool.description.to_lowercase();
    // Whole name, also with blanks where the name has underscores.
    let named = lower_words(&name, WORDS_MAX) == words;
    let mut found = 0;
    let mut score = u32::from(named) * 100;
    for word in words {
        let here = grade(&name, word) * 8 + grade(&description, word) * 3 + grade(&tool.parameters, word);
        found += u32::from(here > 0);
        score += here;
    }
    // A tool with all the words comes before one with many times the same.
    if found as usize == words.len() { score + 40 } else { score }
}
