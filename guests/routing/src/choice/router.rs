//! The routers a client can name, and what they are called.

/// A router that stands where a model's name is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// By price band and an estimate of difficulty.
    Auto,
    /// The same, without pinning.
    AutoBeta,
    /// Among models the client lists, by an estimate of difficulty alone.
    Jev,
    /// The cheapest model of a class of coding ability.
    Pareto,
    /// The cheapest or the dearest of a few.
    Switchyard,
}

/// Every slug, without the vendor. The first of a router is its name in
/// OpenRouter's catalog, the others are what people write.
const SLUGS: [(&str, Router); 9] = [
    ("auto", Router::Auto),
    ("auto-beta", Router::AutoBeta),
    ("pareto-code", Router::Pareto),
    ("pareto", Router::Pareto),
    ("pareto-router", Router::Pareto),
    ("jev", Router::Jev),
    ("jev-router", Router::Jev),
    ("switchyard", Router::Switchyard),
    ("switchyard-router", Router::Switchyard),
];

impl Router {
    /// The router of a slug without its vendor.
    #[must_use]
    pub fn named(slug: &str) -> Option<Self> {
        SLUGS.iter().find(|(known, _)| *known == slug).map(|(_, router)| *router)
    }

    /// All slugs.
    pub fn slugs() -> impl Iterator<Item = &'static str> {
        SLUGS.iter().map(|(slug, _)| *slug)
    }

    /// The id of the plugin entry that holds its settings. It reads no other's.
    #[must_use]
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Auto => "auto-router",
            Self::AutoBeta => "auto-beta-router",
            Self::Jev => "jev-router",
            Self::Pareto => "pareto-router",
            Self::Switchyard => "switchyard-router",
        }
    }

    /// The word for `service_metadata.strategy`.
    pub(super) fn strategy(self) -> &'static str {
        match self {
            Self::Pareto => "pareto",
            Self::Auto | Self::AutoBeta | Self::Jev | Self::Switchyard => "auto",
        }
    }
}
