use proptest::prelude::*;

use super::*;

#[test]
fn plain_paths_pass() {
    let table = [
        ("responses", "responses"),
        ("/responses", "responses"),
        ("models/answers", "models/answers"),
        ("models/m:generate?alt=sse&key=a%20b", "models/m:generate?alt=sse&key=a%20b"),
        ("files/", "files/"),
        ("a.b/..c/...", "a.b/..c/..."),
        ("models/org%2Fname/x", "models/org%2Fname/x"),
        ("models/name%40date", "models/name%40date"),
        ("s%C3%BC", "s%C3%BC"),
        ("a?b=//c@d/../e", "a?b=//c@d/../e"),
    ];
    for (path, relative) in table {
        assert_eq!(check(path), Ok(relative), "{path}");
    }
}

#[test]
fn paths_that_leave_the_base_url_are_refused() {
    let table = [
        ("", PathError::Empty),
        ("/", PathError::Empty),
        ("?a=b", PathError::Empty),
        ("//evil.test/a", PathError::EmptySegment),
        ("///evil.test", PathError::EmptySegment),
        ("//", PathError::EmptySegment),
        ("a//b", PathError::EmptySegment),
        ("a//", PathError::EmptySegment),
        ("https://evil.test/", PathError::Absolute),
        ("HTTPS:/evil.test", PathError::Absolute),
        ("javascript:x", PathError::Absolute),
        ("/https:evil.test", PathError::Absolute),
        ("@evil.test/", PathError::Character),
        ("/user:pass@evil.test", PathError::Character),
        ("\\\\evil.test\\a", PathError::Character),
        ("/\\evil.test", PathError::Character),
        ("a\\..\\b", PathError::Character),
        ("a%5c..%5Cb", PathError::Character),
        ("..", PathError::DotSegment),
        (".", PathError::DotSegment),
        ("../a", PathError::DotSegment),
        ("a/../../b", PathError::DotSegment),
        ("a/./b", PathError::DotSegment),
        ("a/..", PathError::DotSegment),
        ("a/../", PathError::DotSegment),
        ("%2e%2e/a", PathError::DotSegment),
        ("a/.%2E/b", PathError::DotSegment),
        ("a/%2e/b", PathError::DotSegment),
        ("a%2f..%2Fb", PathError::DotSegment),
        ("..%2fb", PathError::DotSegment),
        ("a/%252e%252e/b", PathError::Encoding),
        ("a%2", PathError::Encoding),
        ("a%", PathError::Encoding),
        ("a%zz", PathError::Encoding),
        ("a%+f", PathError::Encoding),
        ("a?b=%g0", PathError::Encoding),
        ("a\r\nHost: evil.test", PathError::Character),
        ("a\nb", PathError::Character),
        ("a\tb", PathError::Character),
        ("a b", PathError::Character),
        ("a\0", PathError::Character),
        ("a%0d%0aHost:%20evil.test", PathError::Character),
        ("a%00", PathError::Character),
        ("a?b=%0A", PathError::Character),
        ("a?b=\n", PathError::Character),
        ("a#b", PathError::Character),
        ("a?b#c", PathError::Character),
        ("a\u{2024}\u{2024}/b", PathError::Character),
        ("a\u{ff0f}b", PathError::Character),
    ];
    for (path, error) in table {
        assert_eq!(check(path), Err(error), "{path:?}");
    }
    assert_eq!(check(&"a".repeat(PATH_BYTES_MAX + 1)), Err(PathError::TooLong));
}

proptest! {
    #[test]
    fn check_never_panics(path in any::<String>()) {
        let _outcome = check(&path);
    }

    #[test]
    fn accepted_paths_are_relative_without_dot_segments(path in "[a-c./?#@:%25eEfF\\\\\\-]{0,16}") {
        if let Ok(relative) = check(&path) {
            prop_assert!(path.ends_with(relative));
            let segments = relative.split('?').next().unwrap();
            prop_assert!(!segments.is_empty() && !segments.starts_with('/') && !segments.contains("//"));
            let decoded = segments.to_lowercase().replace("%2e", ".").replace("%2f", "/");
            prop_assert!(!decoded.split('/').any(|part| part == "." || part == ".."));
            prop_assert!(!relative.contains(['#', '\\']) && !segments.contains('@'));
        }
    }
}
