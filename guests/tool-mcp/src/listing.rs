//! The list of a server's tools: kept for the request, and rendered for the model and the client.

use cofferdam_guest_kit::bindings::tools::Function;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names;
use crate::session::Session;
use crate::settings::Settings;
use crate::tool::Tool;

/// What this request has learned from one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listing {
    #[serde(flatten)]
    pub(crate) session: Session,
    /// The tools that the client chooses.
    pub(crate) tools: Vec<Tool>,
    /// Why the list could not be fetched.
    pub(crate) error: Option<String>,
    /// The message for the operator's log about tools that are not offered.
    #[serde(skip)]
    pub(crate) left_out: Option<String>,
}

impl Listing {
    /// Reads what [`Listing::write`] has written.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The listing as JSON, to be kept.
    pub(crate) fn write(&self) -> Vec<u8> {
        json!(self).to_string().into_bytes()
    }

    /// The tools with the names of their functions.
    fn named(&self, settings: &Settings) -> impl Iterator<Item = (String, &Tool)> {
        let names = names::of(&settings.label, self.tools.iter().map(|tool| tool.name.as_str()));
        names.into_iter().zip(&self.tools)
    }

    /// The tool of a function.
    pub(crate) fn tool(&self, settings: &Settings, function: &str) -> Option<&Tool> {
        self.named(settings).find(|(name, _)| name == function).map(|(_, tool)| tool)
    }

    /// The functions for models, with the items that clients see for their calls.
    pub(crate) fn functions(&self, settings: &Settings) -> Vec<Function> {
        let function = |(name, tool): (String, &Tool)| {
            let item = if settings.asks_for(tool) { "mcp_approval_request" } else { "mcp_call" };
            let mut parameters = tool.parameters();
            let shown = json!({ "type": item, "server_label": settings.label, "name": tool.name });
            parameters.insert("x-item".to_owned(), shown);
            Function::new(name, &tool.description, parameters)
        };
        self.named(settings).map(function).collect()
    }

    /// The members of the item `mcp_list_tools`.
    pub(crate) fn item(&self, settings: &Settings) -> Value {
        json!({ "server_label": settings.label, "tools": self.tools, "error": self.error })
    }
}
