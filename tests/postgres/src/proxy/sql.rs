//! As much of SQL as tells where transactions begin and end: the first words of each statement.

/// What a text with one or more statements does to the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) commits: bool,
    /// Whether a transaction is open afterwards; `None` leaves it as it was.
    pub(super) open: Option<bool>,
}

pub(super) fn effect(sql: &str) -> Effect {
    let mut effect = Effect::default();
    for statement in statements(sql) {
        let mut words = statement.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        let mut word = || words.next().unwrap_or_default().to_ascii_uppercase();
        let (first, second) = (word(), word());
        match (first.as_str(), second.as_str()) {
            ("BEGIN" | "START", _) => effect.open = Some(true),
            ("COMMIT" | "END", _) => {
                effect.commits = true;
                effect.open = Some(false);
            }
            ("ROLLBACK", "TO") => {}
            ("ROLLBACK" | "ABORT", _) | ("PREPARE", "TRANSACTION") => effect.open = Some(false),
            _ => {}
        }
    }
    effect
}

/// The statements without what stands in quotes and comments.
fn statements(sql: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped(rest);
        if skipped > 0 {
            rest = rest.get(skipped..).unwrap_or_default();
            continue;
        }
        if first == ';' {
            statements.push(String::new());
        } else if let Some(statement) = statements.last_mut() {
            statement.push(first);
        }
        rest = rest.get(first.len_utf8()..).unwrap_or_default();
    }
    statements
}

/// The bytes of a quoted text or comment at the start of this text, 0 if there is none. What is not closed reaches
/// to the end.
fn skipped(sql: &str) -> usize {
    let closed_by = |open: usize, close: &str| {
        let inside = sql.get(open..).unwrap_or_default();
        inside.find(close).map_or(sql.len(), |at| open + at + close.len())
    };
    match sql.as_bytes() {
        [b'-', b'-', ..] => closed_by(2, "\n"),
        [b'/', b'*', ..] => closed_by(2, "*/"),
        [b'\'', ..] => closed_by(1, "'"),
        [b'"', ..] => closed_by(1, "\""),
        [b'$', ..] => {
            let tag = sql.get(1..).and_then(|inside| inside.split_once('$')).map(|(tag, _)| tag);
            let is_tag = |tag: &&str| {
                !tag.starts_with(|c: char| c.is_ascii_digit())
                    && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            tag.filter(is_tag).map_or(0, |tag| closed_by(tag.len() + 2, &format!("${tag}$")))
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, effect};

    #[test]
    fn transactions_are_followed_through_texts_of_several_statements() {
        let open = |open| Effect { commits: false, open: Some(open) };
        let commits = Effect { commits: true, open: Some(false) };
        for (sql, wanted) in [
            ("SELECT 1", Effect::default()),
            ("BEGIN; SELECT 1", open(true)),
            ("start transaction isolation level serializable", open(true)),
            ("update a set b = 1; commit; select 2", commits),
            ("COMMIT; BEGIN", Effect { commits: true, open: Some(true) }),
            ("END", commits),
            ("ROLLBACK", open(false)),
            ("ROLLBACK TO one", Effect::default()),
            ("PREPARE TRANSACTION 'a'", open(false)),
            ("SELECT 'a;COMMIT'", Effect::default()),
            ("SELECT 'it''s;COMMIT;'", Effect::default()),
            ("SELECT \";COMMIT;\" -- ;COMMIT\n", Effect::default()),
            ("/* ; */ COMMIT /* ;BEGIN */", commits),
            ("DO $$ BEGIN; COMMIT; END $$", Effect::default()),
            ("DO $a$ $$ BEGIN; COMMIT; $a$; COMMIT", commits),
            ("SELECT $1; COMMIT", commits),
            ("SELECT $1, $2", Effect::default()),
            ("COMMITTED", Effect::default()),
        ] {
            assert_eq!(effect(sql), wanted, "{sql}");
        }
    }
}
