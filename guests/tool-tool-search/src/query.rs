//! A query: words, or a regular expression.

use cofferdam_guest_kit::server_tool::{clip, grade, lower_words};
use regex_lite::{Regex, RegexBuilder};

use crate::deferred::Deferred;

/// The longest regular expression, in characters.
const PATTERN_CHARS_MAX: usize = 200;
/// The longest query of words in characters, and its largest number of words. The rest is ignored.
const WORDS_CHARS_MAX: usize = 1_000;
const WORDS_MAX: usize = 32;
/// The largest size of a compiled expression: `(a{1000}){1000}` is short but compiles to much.
const COMPILED_BYTES_MAX: usize = 256 * 1024;
/// The deepest nesting of groups.
const NESTING_MAX: u32 = 32;
/// The longest text that is matched, in characters. The time of the engine is proportional to the
/// text times the expression.
const MATCHED_CHARS_MAX: usize = 2_000;

/// Characters that plain words do not contain. Plain words may contain a dot, a hyphen or a question
/// mark.
const PATTERN_SIGNS: [char; 11] = ['\\', '^', '$', '|', '*', '+', '(', ')', '[', ']', '{'];

/// A parsed query.
pub(crate) enum Query {
    Words(Vec<String>),
    Pattern(Regex),
}

impl Query {
    /// Reads a query. A query with a sign of regular expressions is one; otherwise its words are
    /// searched for. Letter case never matters.
    ///
    /// # Errors
    ///
    /// What is wrong with the query, for the model.
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

    /// How well a tool matches; zero means that it does not match. A match in the name counts more
    /// than one in the description, a whole word more than a part of one.
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
    // The whole name, also when it is written with blanks instead of underscores.
    let named = lower_words(&name, WORDS_MAX) == words;
    let mut found = 0;
    let mut score = u32::from(named) * 100;
    for word in words {
        let here = grade(&name, word) * 8 + grade(&description, word) * 3 + grade(&tool.parameters, word);
        found += u32::from(here > 0);
        score += here;
    }
    // A tool that contains all words comes before one that contains one word in many places.
    if found as usize == words.len() { score + 40 } else { score }
}
