//! Output that a page shows, compared with what a command has printed.

/// Whether the lines are those expected: `...` stands for any lines, `[..]` within a line for any text.
pub(super) fn is_output(expected: &[String], printed: &[&str]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((line, rest)), _) if line.trim() == "..." => {
            (0..=printed.len()).any(|skipped| is_output(rest, &printed[skipped..]))
        }
        (Some((line, rest)), Some((first, more))) => is_line(line, first) && is_output(rest, more),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn is_line(expected: &str, printed: &str) -> bool {
    let Some((begin, rest)) = expected.split_once("[..]") else { return expected == printed };
    let Some(mut printed) = printed.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split("[..]").collect();
    let end = parts.pop().unwrap();
    for part in parts {
        let Some((_, after)) = printed.split_once(part) else { return false };
        printed = after;
    }
    printed.ends_with(end)
}

#[test]
fn wildcards_stand_for_text_and_lines() {
    let is = |expected: &str, printed: &str| {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        is_output(&expected, &printed.lines().collect::<Vec<_>>())
    };
    assert!(is("a [..] c [..]!", "a b c d!"));
    assert!(!is("a [..] c [..]!", "a b d d!"));
    assert!(!is("ab[..]b", "ab"));
    assert!(is("...\nb\n...", "a\na\nb"));
    assert!(!is("...\nb", "a\nc"));
    assert!(is("...", ""));
    assert!(!is("a", "a\nb"));
}
