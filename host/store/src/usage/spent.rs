//! Sums of what usage rows cost, by workspace and by API key.

use serde::{Deserialize, Serialize};

use super::UsageRow;
use crate::spend::Spent;

/// Stored spend of a workspace.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct WorkspaceSpent {
    pub(crate) charged_pico: u64,
    pub(crate) byok_pico: u64,
}

impl WorkspaceSpent {
    pub(crate) fn add(&mut self, row: &UsageRow) {
        self.charged_pico = self.charged_pico.saturating_add(row.cost_pico);
        self.byok_pico = self.byok_pico.saturating_add(row.byok_pico);
    }
}

/// Stored spend of a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct KeySpent {
    pub(crate) charged: Spent,
    pub(crate) byok: Spent,
}

impl KeySpent {
    pub(crate) fn add(&mut self, row: &UsageRow) {
        self.charged.add(row.at_ms, row.cost_pico);
        self.byok.add(row.at_ms, row.byok_pico);
    }
}
