//! The routers that a client can name, and their slugs.

/// A router that is named in place of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Router {
    /// Chooses by price band and estimated difficulty.
    Auto,
    /// The same, without pinning.
    AutoBeta,
    /// Chooses among models that the client lists, by estimated difficulty alone.
    Jev,
    /// Chooses the cheapest model of a class of coding ability.
    Pareto,
    /// Chooses the cheapest or the dearest of a few models.
    Switchyard,
}

/// Every slug, without the vendor. The first slug of a router is its name in OpenRouter's catalog; the
/// others are common spellings.
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
    /// The router for a slug without its vendor.
    #[must_use]
    pub fn named(slug: &str) -> Option<Self> {
        SLUGS.iter().find(|(known, _)| *known == slug).map(|(_, router)| *router)
    }

    /// All slugs.
    pub fn slugs() -> impl Iterator<Item = &'static str> {
        SLUGS.iter().map(|(slug, _)| *slug)
    }

    /// The id of the plugin entry that holds its settings. A router ignores the entries of others.
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

    /// The value for `service_metadata.strategy`.
    pub(super) fn strategy(self) -> &'static str {
        match self {
            Self::Pareto => "pareto",
            Self::Auto | Self::AutoBeta | Self::Jev | Self::Switchyard => "auto",
        }
    }
}
