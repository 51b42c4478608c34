//! What each generation of Claude accepts. A request must not fail because a model was replaced
//! by its successor. The differences that lead to status 400 are therefore listed here, by family
//! and version.
//!
//! A name of another form (for example of a compatible server) counts as an older model, unless
//! the endpoint has `supports = ["adaptive_thinking"]`.

/// How a model is asked to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// Only with a budget of tokens.
    Budget,
    /// With a budget of tokens, or adaptively with an effort.
    Either,
    /// Only adaptively with an effort.
    Adaptive,
}

/// What one model accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    pub thinking: ThinkingStyle,
    /// Thinking cannot be switched off.
    pub always_thinks: bool,
    /// Refuses `temperature`, `top_p` and `top_k`.
    pub fixed_sampling: bool,
    /// Refuses `temperature` together with `top_p`.
    pub one_sampler: bool,
    /// Accepts the effort `xhigh`.
    pub xhigh: bool,
    /// Can continue an assistant message at the end of the conversation. Other models refuse it.
    pub continues: bool,
}

const OLDER: Model = Model {
    thinking: ThinkingStyle::Budget,
    always_thinks: false,
    fixed_sampling: false,
    one_sampler: false,
    xhigh: false,
    continues: true,
};

impl Model {
    /// What the model with this name accepts at this endpoint.
    pub fn of(name: &str, supports: &[String]) -> Self {
        let mut model = Self::named(name);
        if supports.iter().any(|ability| ability == "adaptive_thinking") {
            model.thinking = ThinkingStyle::Adaptive;
        }
        model
    }

    fn named(name: &str) -> Self {
        let Some((family, version)) = family_and_version(name) else { return OLDER };
        let (adaptive, either, one_sampler) = match family {
            "opus" => (version >= (4, 7), version >= (4, 6), version >= (4, 1)),
            "sonnet" => (version >= (5, 0), version >= (4, 6), version >= (4, 5)),
            "haiku" => (version >= (5, 0), version >= (5, 0), version >= (4, 5)),
            "instant" => return OLDER,
            // Families that first appeared in the fifth generation always think adaptively.
            _ => (true, true, true),
        };
        let thinking = match (adaptive, either) {
            (true, _) => ThinkingStyle::Adaptive,
            (false, true) => ThinkingStyle::Either,
            (false, false) => ThinkingStyle::Budget,
        };
        Model {
            thinking,
            always_thinks: !matches!(family, "opus" | "sonnet" | "haiku"),
            fixed_sampling: adaptive,
            one_sampler,
            xhigh: adaptive,
            continues: !either && !adaptive,
        }
    }
}

/// Reads `claude-opus-4-7`, `claude-3-5-sonnet-20241022`, and the same names after a vendor
/// prefix (`us.anthropic.claude-opus-4-7-v1:0`).
fn family_and_version(name: &str) -> Option<(&str, (u32, u32))> {
    let start = name.find("claude-")?;
    let words = name.get(start.saturating_add("claude-".len())..)?.split(['-', '.', '@', ':', '/', '_']);
    let mut family = None;
    let mut numbers = Vec::new();
    for word in words {
        match word.parse::<u32>() {
            // Longer numbers are dates.
            Ok(number) if word.len() <= 2 && numbers.len() < 2 => numbers.push(number),
            Err(_) if family.is_none() && word.len() > 2 => family = Some(word),
            _ if family.is_some() => break,
            _ => {}
        }
    }
    let version = match numbers.as_slice() {
        [major, minor] => (*major, *minor),
        [major] => (*major, 0),
        _ => (0, 0),
    };
    family.map(|family| (family, version))
}

#[cfg(test)]
mod tests {
    use super::{Model, ThinkingStyle, family_and_version};

    #[test]
    fn reads_family_and_version() {
        let cases = [
            ("claude-opus-4-7", Some(("opus", (4, 7)))),
            ("claude-opus-4-20250514", Some(("opus", (4, 0)))),
            ("claude-opus-4-1-20250805", Some(("opus", (4, 1)))),
            ("claude-sonnet-4.6", Some(("sonnet", (4, 6)))),
            ("claude-3-5-sonnet-20241022", Some(("sonnet", (3, 5)))),
            ("claude-3-haiku-20240307", Some(("haiku", (3, 0)))),
            ("us.anthropic.claude-opus-4-6-v1:0", Some(("opus", (4, 6)))),
            ("claude-fable-5", Some(("fable", (5, 0)))),
            ("claude-", None),
            ("gpt-5", None),
        ];
        for (name, expected) in cases {
            assert_eq!(family_and_version(name), expected, "{name}");
        }
    }

    #[test]
    fn each_generation_has_its_thinking_style() {
        use ThinkingStyle::{Adaptive, Budget, Either};
        let cases = [
            ("claude-3-7-sonnet-20250219", Budget, false),
            ("claude-sonnet-4-5", Budget, false),
            ("claude-haiku-4-5", Budget, false),
            ("claude-sonnet-4-6", Either, false),
            ("claude-opus-4-6", Either, false),
            ("claude-opus-4-7", Adaptive, false),
            ("claude-sonnet-5", Adaptive, false),
            ("claude-fable-5", Adaptive, true),
            ("deepseek-chat", Budget, false),
        ];
        for (name, thinking, always) in cases {
            let model = Model::of(name, &[]);
            assert_eq!((model.thinking, model.always_thinks), (thinking, always), "{name}");
        }
        let stated = Model::of("house-model", &["adaptive_thinking".to_owned()]);
        assert_eq!(stated.thinking, Adaptive);
    }
}
