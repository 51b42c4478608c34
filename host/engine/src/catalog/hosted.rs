//! Tools that a provider runs inside its own endpoint, and objects stored there: which of them an
//! endpoint accepts, with which credential, and what a call costs.

use super::Endpoint;
use crate::cost::Amount;
use crate::request::{Hosted, Meaning, is_search};
use cofferdam_runtime::wire::Event;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The provider's tools and stored objects that clients may use with the operator's credential.
#[derive(Clone, Debug, Default)]
pub struct HostedTools {
    /// Types of tools, each with the price of one call.
    pub tools: BTreeMap<String, Amount>,
    /// Ids of objects stored at the provider that requests may name.
    pub stored: BTreeSet<String>,
}

/// What an endpoint does not accept of a provider's tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lack<'r> {
    /// The tool as a whole.
    Tool,
    /// The member with this name.
    Member(&'r str),
    /// The client may not use the stored object that this member names.
    Stored(&'r str),
}

/// Prices of calls of a provider's tools, by the type of the item that reports a call.
#[derive(Debug, Default)]
pub(crate) struct CallPrices(BTreeMap<String, Amount>);

impl Endpoint {
    /// The members that the dialect supports for a tool of this type; none if it does not have the
    /// tool.
    fn members_of(&self, tool_type: &str) -> Option<&BTreeSet<String>> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        let table = self.provider.adapter.manifest().provider.as_ref();
        let declared = table.and_then(|table| table.hosted_tools.get(tool_type));
        declared.or_else(|| self.states_tool(tool_type).then_some(&NONE))
    }

    /// Whether a tool of this type can be offered here: as a tool that the client runs, or as a
    /// provider's tool with the operator's credential.
    pub(crate) fn has_tool(&self, tool_type: &str) -> bool {
        self.offers(tool_type) || self.hosted.tools.contains_key(tool_type)
    }

    /// Whether the provider receives tools of this type, and their calls, as the client sent them.
    /// A web search that the client may not use is left out instead.
    pub(crate) fn takes_kind(&self, tool_type: &str, is_byok: bool) -> bool {
        match is_search(tool_type) {
            true => self.usable(tool_type, is_byok).is_some(),
            false => self.offers(tool_type) || self.members_of(tool_type).is_some(),
        }
    }

    /// The members of a tool that clients may use with this credential.
    fn usable(&self, tool_type: &str, is_byok: bool) -> Option<&BTreeSet<String>> {
        self.members_of(tool_type).filter(|_| is_byok || self.hosted.tools.contains_key(tool_type))
    }

    /// What the endpoint does not accept of a provider's tool or of a stored object. With the
    /// caller's own credential (`is_byok`) the operator's lists do not apply.
    pub(crate) fn lacks<'r>(&self, hosted: &'r Hosted, is_byok: bool) -> Option<Lack<'r>> {
        let declared = match &hosted.type_name {
            None => None,
            Some(tool_type) => match self.usable(tool_type, is_byok) {
                None => return Some(Lack::Tool),
                declared => declared,
            },
        };
        hosted.members.iter().find_map(|member| match &member.means {
            Meaning::Setting if declared.is_none_or(|known| known.contains(&member.name)) => None,
            Meaning::Setting | Meaning::Unknown => Some(Lack::Member(&member.name)),
            Meaning::Stored(id) if is_byok || self.hosted.stored.contains(id) => None,
            Meaning::Stored(_) => Some(Lack::Stored(&member.name)),
        })
    }

    /// The prices of calls of these tool types, which a request offers.
    pub(crate) fn call_prices(&self, offered: &[String]) -> CallPrices {
        let mut prices = BTreeMap::new();
        for tool_type in offered {
            let price = self.hosted.tools.get(tool_type).copied().unwrap_or_default();
            if price > Amount::default() {
                let known: &mut Amount = prices.entry(item_of(tool_type)).or_default();
                *known = price.max(*known);
            }
        }
        CallPrices(prices)
    }
}

/// The type of the item that reports a call.
fn item_of(tool_type: &str) -> String {
    // All versions of web search report their calls with the same item.
    if tool_type.starts_with("web_search") {
        "web_search_call".to_owned()
    } else {
        format!("{tool_type}_call")
    }
}

/// The members of an item that its price depends on.
#[derive(Deserialize)]
struct PricedItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

impl CallPrices {
    /// The price of the calls that these events report.
    pub(crate) fn of_events(&self, events: &[Event]) -> Amount {
        if self.0.is_empty() {
            return Amount::default();
        }
        events.iter().map(|event| self.of_event(event)).fold(Amount::default(), Amount::plus)
    }

    fn of_event(&self, event: &Event) -> Amount {
        let price = |kind: &str| self.0.get(kind).copied().unwrap_or_default();
        match event {
            Event::ImageDone(_) => price("image_generation_call"),
            Event::OpaqueItem(json) => serde_json::from_slice::<PricedItem<'_>>(json)
                .map(|item| price(&item.kind))
                .unwrap_or_default(),
            _ => Amount::default(),
        }
    }
}
