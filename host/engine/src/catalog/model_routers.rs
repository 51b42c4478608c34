//! The plugins that choose models, with the models they choose from.

use super::Model;
use cofferdam_runtime::{Plugin, wire};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The known ids of plugin entries that hold settings for a model router, not for a hook.
pub(crate) const ROUTER_ENTRY_IDS: [&str; 5] =
    ["auto-router", "auto-beta-router", "jev-router", "switchyard-router", "pareto-router"];

/// The model routers of this host and the models they choose from. They are the same for every
/// request.
pub(crate) struct ModelRouters {
    pub(crate) by_slug: BTreeMap<String, Arc<Plugin>>,
    /// The models for responses, each with the description that a model router gets where the request
    /// permits all endpoints of the model.
    pub(crate) models: Vec<(Arc<Model>, wire::Model)>,
    pub(crate) prices: CatalogPrices,
}

/// What each model for responses costs at its cheapest endpoint, ascending: dollars for a token of input and
/// one of output together.
pub(crate) struct CatalogPrices(pub(crate) Vec<f64>);
