//! The plugin entry of a router: `auto-router`, `auto-beta-router`,
//! `jev-router`, `pareto-router` and `switchyard-router`.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;

use super::Model;
use super::band::Band;
use super::pareto::Pareto;
use super::patterns::{LowerIds, Patterns};
use super::router::Router;
use super::switchyard::Algorithm;

/// The largest number of patterns in one list.
const PATTERNS_MAX: usize = 1024;
/// The longest pattern, in characters.
const PATTERN_CHARS_MAX: usize = 1024;
/// The longest text of all patterns of an entry together, in characters.
const ALL_CHARS_MAX: usize = 65_536;

/// The settings of an entry, or the defaults.
#[derive(Debug)]
pub(super) struct Settings {
    allow: Patterns,
    exclude: Patterns,
    pub(super) rule: Rule,
}

/// The rule by which a router chooses.
#[derive(Debug)]
pub(super) enum Rule {
    /// By price band and difficulty.
    Auto {
        budget: Band,
        /// Whether to keep the model that the last assistant message names.
        pin_model: bool,
    },
    Jev,
    Pareto(Pareto),
    Switchyard(Algorithm),
}

impl Settings {
    /// Reads the entry of `router`. An entry that is disabled or belongs to another router is
    /// ignored.
    ///
    /// # Errors
    /// The first invalid field, by its path.
    pub(super) fn parse(router: Router, json: &[u8]) -> Result<Self, Failure> {
        let plugin = router.plugin();
        let mut fields = Fields::parse(json, plugin)?;
        let foreign = fields.value("id").is_some_and(|id| id.as_str() != Some(plugin));
        if foreign || fields.flag("enabled")? == Some(false) {
            fields = Fields::parse(b"{}", plugin)?;
        }
        let mut lists = Lists { fields: &fields, chars: 0 };
        let (allow, exclude) = match router {
            Router::Auto | Router::AutoBeta => {
                (lists.read(&["allowed_models"])?, lists.read(&["excluded_models"])?)
            }
            // Both names of the list are accepted, and their patterns are added up.
            Router::Jev => (lists.read(&["models", "allowed_models"])?, lists.read(&["excluded_models"])?),
            Router::Pareto | Router::Switchyard => (Patterns::default(), Patterns::default()),
        };
        let rule = match router {
            Router::Auto => Rule::Auto {
                budget: Band::read(&fields)?,
                pin_model: fields.flag("pin_model")?.unwrap_or(false),
            },
            Router::AutoBeta => Rule::Auto { budget: Band::read(&fields)?, pin_model: false },
            Router::Jev => Rule::Jev,
            Router::Pareto => Rule::Pareto(Pareto::read(&fields)?),
            Router::Switchyard => Rule::Switchyard(Algorithm::read(&fields)?),
        };
        Ok(Self { allow, exclude, rule })
    }

    /// The models that the restrictions allow. An exclusion always wins. An empty list restricts
    /// nothing.
    pub(super) fn allowed(&self, models: &[Model]) -> Vec<usize> {
        if self.allow.is_empty() && self.exclude.is_empty() {
            return (0..models.len()).collect();
        }
        let ids = LowerIds::new(models.iter().map(|model| model.id.as_str()));
        let (listed, excluded) = (self.allow.matches(&ids), self.exclude.matches(&ids));
        let open = self.allow.is_empty();
        let marks = listed.into_iter().zip(excluded).enumerate();
        marks
            .filter_map(|(index, (listed, excluded))| ((open || listed) && !excluded).then_some(index))
            .collect()
    }
}

/// The pattern lists of one entry, which share a limit of characters.
struct Lists<'a> {
    fields: &'a Fields,
    chars: usize,
}

impl Lists<'_> {
    /// Reads the patterns of several fields as one list.
    fn read(&mut self, names: &[&str]) -> Result<Patterns, Failure> {
        let mut all = Vec::new();
        for name in names {
            let list = self.fields.strings(name)?.unwrap_or_default();
            if list.len() > PATTERNS_MAX {
                let rule = format!("must hold at most {PATTERNS_MAX} patterns");
                return Err(self.fields.wrong(name, &rule));
            }
            for (index, pattern) in list.iter().enumerate() {
                self.count(pattern).map_err(|rule| self.fields.wrong(&format!("{name}[{index}]"), &rule))?;
            }
            all.extend(list);
        }
        Ok(Patterns::new(all.into_iter()))
    }

    /// Counts the pattern's characters. The error is the rule that the pattern breaks.
    fn count(&mut self, pattern: &str) -> Result<(), String> {
        let chars = pattern.chars().count();
        self.chars += chars;
        if chars > PATTERN_CHARS_MAX {
            return Err(format!("must have at most {PATTERN_CHARS_MAX} characters"));
        }
        if self.chars > ALL_CHARS_MAX {
            return Err(format!(
                "is beyond the {ALL_CHARS_MAX} characters that all patterns together may have"
            ));
        }
        Ok(())
    }
}
