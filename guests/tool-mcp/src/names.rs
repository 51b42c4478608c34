//! Names of functions: models take letters, digits and underscores, at most 64 of them, while servers call
//! their tools what they like, and several servers may have tools of one name.

use std::collections::BTreeSet;

/// The longest name of a function.
const NAME_BYTES_MAX: usize = 64;
/// The most that a label takes of it.
const LABEL_BYTES_MAX: usize = 24;

/// A function for each tool, in their order: `label__tool`. What would be one name for two tools is numbered.
pub(crate) fn of<'a>(label: &str, tools: impl Iterator<Item = &'a str>) -> Vec<String> {
    let label = plain(label, LABEL_BYTES_MAX);
    let mut taken = BTreeSet::new();
    let name = |tool: &str| {
        let whole = format!("{label}__{}", plain(tool, NAME_BYTES_MAX - label.len() - 2));
        let numbered = (2..).map(|number| {
            let end = format!("_{number}");
            let kept = whole.len().min(NAME_BYTES_MAX - end.len());
            // Only ASCII.
            format!("{}{end}", whole.get(..kept).unwrap_or_default())
        });
        let mut names = std::iter::once(whole.clone()).chain(numbered);
        // The numbers have no end, so one is free.
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
    fn names_are_plain_and_told_apart() {
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
