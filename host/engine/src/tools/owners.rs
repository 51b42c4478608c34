//! Which entry of a request's `tools` serves which function, and what to say where two offer the same.

use super::offer::Entry;
use crate::refusal::Refusal;
use crate::request::{Place, RequestTool};
use crate::routing::printable;
use std::collections::BTreeMap;

/// Who serves which function. Entries of the client's own kinds come last and give way: they are left to
/// endpoints whose dialect has them.
///
/// # Errors
/// 400 naming both entries that offer the same function.
pub(super) fn owners(
    entries: &mut [Entry],
    tools: &[RequestTool],
    left: &mut BTreeMap<usize, Refusal>,
) -> Result<BTreeMap<String, usize>, Refusal> {
    let mut offered: BTreeMap<String, usize> = BTreeMap::new();
    let mut owners = BTreeMap::new();
    // The client's own functions may have the same name as far as this host is concerned; its provider knows.
    for (place, tool) in tools.iter().enumerate() {
        if let Some(name) = tool.function_name() {
            offered.entry(name.to_owned()).or_insert(place);
        }
    }
    let (clients, servers): (Vec<usize>, Vec<usize>) = (0..entries.len())
        .partition(|place| matches!(entries.get(*place), Some(Entry::Server { client: Some(_), .. })));
    for place in servers.into_iter().chain(clients) {
        let Some(Entry::Server { functions, client, .. }) = entries.get(place) else { continue };
        let client = client.as_ref().map(|client| client.json.clone());
        let mut names: Vec<String> = functions.iter().map(|shows| shows.function.clone()).collect();
        names.sort_unstable();
        let twice = names
            .windows(2)
            .find(|pair| pair.first() == pair.last())
            .and_then(|pair| Some((pair.first()?, place)));
        let taken = names.iter().find_map(|name| Some((name, *offered.get(name)?))).or(twice);
        let clash = taken.map(|(name, other)| collision(tools, entries, other, place, name));
        match (clash, client) {
            (Some(clash), None) => return Err(clash),
            (Some(clash), Some(json)) => {
                left.insert(place, clash);
                entries.get_mut(place).into_iter().for_each(|entry| *entry = Entry::Client(json.clone()));
            }
            (None, _) => {
                offered.extend(names.iter().map(|name| (name.clone(), place)));
                owners.extend(names.into_iter().map(|name| (name, place)));
            }
        }
    }
    Ok(owners)
}

fn collision(
    tools: &[RequestTool],
    entries: &[Entry],
    first: usize,
    second: usize,
    function: &str,
) -> Refusal {
    let (first, second) = (first.min(second), first.max(second));
    let name = |place: usize| match entries.get(place) {
        Some(Entry::Server { tool, .. }) => Some(tool.name.as_str()),
        _ => None,
    };
    let path = |place: usize| tools.get(place).map_or(Place::Tools(place), |tool| tool.source.place);
    let function = printable(function);
    if name(first).is_some() && name(first) == name(second) {
        return Refusal::invalid(format!(
            "{} and {} are the same server tool, whose function \"{function}\" can be offered only once",
            path(first),
            path(second)
        ));
    }
    Refusal::invalid(format!(
        "{} and {} both offer a function named \"{function}\"",
        path(first),
        path(second)
    ))
}
