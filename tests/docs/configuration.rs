//! The keys of `docs/configuration.md`, a table for each table of the file.

use super::generated;
use cofferdam::config::keys::{ConfigKey, Default, KEYS};
use std::fmt::Write;

#[test]
fn the_generated_page_of_configuration_is_current() {
    let (mut text, mut section) = (String::new(), "");
    for ConfigKey { path, default, unit, about } in KEYS {
        let begins = path.split(['.', '[']).next().unwrap();
        if begins != section {
            section = begins;
            write!(text, "\n### {section}\n\n| Key | Default | Unit | Meaning |\n|---|---|---|---|\n")
                .unwrap();
        }
        let default = match default {
            Default::Is(written) => format!("`{written}`"),
            Default::Absent => "none".to_owned(),
            Default::Required => "required".to_owned(),
            Default::Described(words) => (*words).to_owned(),
        };
        writeln!(text, "| `{path}` | {default} | {unit} | {about} |").unwrap();
    }
    generated::check("configuration.md", &text);
}
