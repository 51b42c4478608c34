//! File paths that a model chose.

/// Checks that `path` names a file below some folder and nothing outside of it, on any operating
/// system: names are separated by slashes, no name is empty, `.` or `..`, and no character is
/// invisible.
///
/// # Errors
///
/// What the path has to be, as a text that follows the name of the field.
pub fn relative_path(path: &str, bytes_max: usize) -> Result<(), String> {
    if path.is_empty() || path.len() > bytes_max {
        return Err(format!("must be a path of 1 to {bytes_max} bytes"));
    }
    if path.chars().any(|char| char.is_control() || is_invisible(char)) {
        return Err("must not hold characters that cannot be seen".to_owned());
    }
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    if path.starts_with(['/', '~']) || path.contains('\\') || has_drive {
        return Err("must be relative and have / between names, such as src/main.js".to_owned());
    }
    let is_place = |name: &str| name.trim().is_empty() || name.trim_end_matches(['.', ' ']).is_empty();
    if path.split('/').any(is_place) {
        return Err("must not have empty names, . or ..".to_owned());
    }
    Ok(())
}

/// Characters that change the writing direction or have no width. With them one name can look like
/// another.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_stay_below_their_folder() {
        for path in ["a", "a.txt", "notes/plan v2.md", "ä/ö.js", ".gitignore", "a/..b/c", "a-b_c/(1).x"] {
            assert_eq!(relative_path(path, 100), Ok(()), "{path}");
        }
        for path in [
            "",
            "/etc/passwd",
            "../a",
            "a/../b",
            "a/..",
            "a//b",
            "./a",
            "a/.",
            "a/",
            "~/.ssh",
            "C:/x",
            "c:x",
            "a\\b",
            "..\\a",
            "a\0b",
            "a\nb",
            "a/ /b",
            "a/.. /b",
            "a/...",
            "x\u{202e}txt.exe",
            "a\u{200b}",
            "a\u{feff}b",
        ] {
            assert!(relative_path(path, 100).is_err(), "{path:?}");
        }
        assert!(relative_path(&"x".repeat(101), 100).is_err());
    }

    proptest! {
        #[test]
        fn valid_paths_never_leave_the_folder(path in "[a./\\\\~: ]{0,12}") {
            if relative_path(&path, 100).is_ok() {
                let mut depth = 0i32;
                for name in path.split('/') {
                    prop_assert!(!name.is_empty());
                    depth += if name.trim() == ".." { -1 } else { 1 };
                    prop_assert!(depth > 0);
                }
            }
        }
    }
}
