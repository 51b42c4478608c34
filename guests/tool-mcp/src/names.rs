//! Names of functions. Models accept letters, digits and underscores, at most 64 characters. Servers
//! may name their tools freely, and several servers may have tools with the same name.

use std::collections::BTreeSet;

/// The longest name of a function.
const NAME_BYTES_MAX: usize = 64;
/// The longest part of the name that the label may use.
const LABEL_BYTES_MAX: usize = 24;

/// One function name per tool, in their order: `label__tool`. If two tools would get the same name, a
/// number is added.
pub(crate) fn of<'a>(label: &str, tools: impl Iterator<Item = &'a str>) -> Vec<String> {
    let label = plain(label, LABEL_BYTES_MAX);
    let mut taken = BTreeSet::new();
    let name = |tool: &str| {
        let whole = format!("{label}__{}", plain(tool, NAME_BYTES_MAX - label.len() - 2));
        let numbered = (2..).map(|number| {
            let end = format!("_{number}");
            let kept = whole.len().min(NAME_BYTES_MAX - end.len());
            // The name is ASCII, so every byte offset is a character boundary.
            format!("{}{end}", whole.get(..kept).unwrap_or_default())
        });
        let mut names = std::iter::once(whole.clone()).chain(numbered);
        // The sequence of numbers is endless, so a free name is always found.
        names.find(|name| taken.insert(name.clone())).unwrap_or(whole)
    };
    tools.map(name).collect()
}

fn plain(text: &str, bytes_max: usize) -> String {
    let letters = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    letters.take(bytes_max).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_plain_and_distinct() {
        let names = of("my server", ["get-weather", "get.weather", "get_weather", "größe"].into_iter());
        let expected = [
            "my_server__get_weather",
            "my_server__get_weather_2",
            "my_server__get_weather_3",
            "my_server__gr__e",
        ];
        assert_eq!(names, expected);
    }

    proptest! {
        #[test]
        fn any_tools_get_names_that_models_take(label in "\\PC{0,40}", tools in proptest::collection::vec("[a_\\-é]{0,90}", 0..40)) {
            let names = of(&label, tools.iter().map(String::as_str));
            prop_assert_eq!(names.len(), tools.len());
            let distinct: BTreeSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), tools.len());
            for name in &names {
                let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                prop_assert!(is_plain && (1..=NAME_BYTES_MAX).contains(&name.len()), "{}", name);
            }
        }
    }
}
