//! An index of the offered functions by the members of their items and by `tool_choice` names. A
//! history may have thousands of items, so each must cost one look-up.

use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// A function that the host serves, with the fields it is found by.
pub(super) struct ServedFunction<'a> {
    /// The tool's name without prefix.
    pub(super) tool: &'a str,
    /// The label of the server behind the tool.
    pub(super) label: Option<&'a str>,
    pub(super) function: &'a str,
    /// The declared members of the items of its calls.
    pub(super) members: &'a Map<String, Value>,
}

/// The functions of all tools.
#[derive(Default)]
pub(super) struct ServedFunctions {
    tools: HashMap<String, Tool>,
    labels: HashSet<String>,
    servers: HashMap<String, ServerFunctions>,
}

/// The functions of one tool.
#[derive(Default)]
struct Tool {
    functions: Vec<String>,
    /// The number of declared text members of each function's items.
    said: Vec<usize>,
    /// Indexes of the functions, fewest declared members first.
    terse: Vec<usize>,
    /// Indexes of the functions that declare this value for this member.
    saying: HashMap<String, HashMap<String, Vec<usize>>>,
    /// The first function by label.
    first: HashMap<Option<String>, String>,
}

/// The functions whose items have one `server_label`.
#[derive(Default)]
struct ServerFunctions {
    functions: Vec<String>,
    by_name: HashMap<String, Vec<String>>,
}

impl Tool {
    /// Sorts the functions by their number of declared members.
    fn sort(&mut self) {
        self.terse = (0..self.functions.len()).collect();
        self.terse.sort_by_key(|place| self.said.get(*place));
    }
}

impl ServedFunctions {
    /// Builds the index. `tools` are the names and labels of all tools; `entries` their functions
    /// in the order of the offer.
    pub(super) fn of<'a>(
        tools: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        entries: impl Iterator<Item = ServedFunction<'a>>,
    ) -> Self {
        let mut served = Self::default();
        for (tool, label) in tools {
            served.tools.insert(tool.to_owned(), Tool::default());
            served.labels.extend(label.map(str::to_owned));
        }
        entries.for_each(|entry| served.add(&entry));
        served.tools.values_mut().for_each(Tool::sort);
        served
    }

    fn add(&mut self, entry: &ServedFunction<'_>) {
        let function = || entry.function.to_owned();
        self.tools.entry(entry.tool.to_owned()).or_default().add(entry);
        let text = |name| entry.members.get(name).and_then(Value::as_str);
        let Some(label) = text("server_label") else { return };
        let server = self.servers.entry(label.to_owned()).or_default();
        server.functions.push(function());
        if let Some(name) = text("name") {
            server.by_name.entry(name.to_owned()).or_default().push(function());
        }
    }

    /// The functions of a tool; `None` if there is no such tool.
    pub(super) fn of_tool(&self, tool: &str) -> Option<&[String]> {
        self.tools.get(tool).map(|tool| tool.functions.as_slice())
    }

    /// Whether a tool has this label, even if it offers nothing.
    pub(super) fn has_label(&self, label: &str) -> bool {
        self.labels.contains(label)
    }

    /// The first function of a tool with this label.
    pub(super) fn first_of(&self, tool: &str, label: &Option<String>) -> Option<&str> {
        self.tools.get(tool)?.first.get(label).map(String::as_str)
    }

    /// The functions that stand for the tools of the server with this label, or for the one with
    /// this name.
    pub(super) fn on_server(&self, label: &str, name: Option<&str>) -> &[String] {
        let server = self.servers.get(label);
        let found = server.and_then(|server| match name {
            None => Some(&server.functions),
            Some(name) => server.by_name.get(name),
        });
        found.map_or(&[], Vec::as_slice)
    }

    /// The function of `tool` whose calls are items with these members: the one whose declared
    /// members match best. `None` where several match equally.
    pub(super) fn like(&self, tool: &str, item: &Map<String, Value>) -> Option<&str> {
        self.tools.get(tool)?.like(item)
    }
}

impl Tool {
    fn add(&mut self, entry: &ServedFunction<'_>) {
        let place = self.functions.len();
        let label = entry.label.map(str::to_owned);
        self.first.entry(label).or_insert_with(|| entry.function.to_owned());
        self.functions.push(entry.function.to_owned());
        let said = entry.members.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
        let mut count = 0;
        for (name, value) in said {
            count += 1;
            let values = self.saying.entry(name.clone()).or_default();
            values.entry(value.to_owned()).or_default().push(place);
        }
        self.said.push(count);
    }

    /// A declared member with the same value counts for a function, any other declared member
    /// against it. A mismatch does not exclude the function, because some members are different in
    /// each request, such as the id of a container.
    fn like(&self, item: &Map<String, Value>) -> Option<&str> {
        let mut right: HashMap<usize, usize> = HashMap::new();
        for (name, value) in item {
            let places =
                self.saying.get(name).zip(value.as_str()).and_then(|(values, text)| values.get(text));
            places.into_iter().flatten().for_each(|place| *right.entry(*place).or_default() += 1);
        }
        // Of the functions without a match, only the two with the fewest declared members can be
        // the best two.
        let others: Vec<usize> =
            self.terse.iter().filter(|place| !right.contains_key(place)).take(2).copied().collect();
        let places = right.keys().copied().chain(others);
        let likeness = |place: usize| {
            let right = right.get(&place).copied().unwrap_or_default();
            (2 * right).checked_signed_diff(self.said.get(place).copied().unwrap_or_default())
        };
        let mut alike: Vec<_> = places.map(|place| (likeness(place), place)).collect();
        alike.sort_by_key(|(likeness, _)| Reverse(*likeness));
        match alike.as_slice() {
            [(best, _), (next, _), ..] if best == next => None,
            alike => alike.first().and_then(|(_, place)| self.functions.get(*place)).map(String::as_str),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn members(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// The same search without an index.
    fn searched<'a>(
        functions: &'a [(String, Map<String, Value>)],
        item: &Map<String, Value>,
    ) -> Option<&'a str> {
        let likeness = |said: &Map<String, Value>| -> i32 {
            let said = said.iter().filter(|(_, value)| value.is_string());
            said.map(|(name, value)| if item.get(name) == Some(value) { 1 } else { -1 }).sum()
        };
        let mut alike: Vec<_> = functions.iter().map(|(name, said)| (likeness(said), name)).collect();
        alike.sort_by_key(|(likeness, _)| Reverse(*likeness));
        match alike.as_slice() {
            [(best, _), (next, _), ..] if best == next => None,
            alike => alike.first().map(|(_, name)| name.as_str()),
        }
    }

    #[test]
    fn functions_are_found_by_server_and_by_tool() {
        let said = [
            json!({"server_label": "a", "name": "read"}),
            json!({"server_label": "a", "name": "write"}),
            json!({"server_label": "b", "name": "read"}),
        ]
        .map(|value| members(&value));
        let entries = said.iter().zip(["a_read", "a_write", "b_read"]).map(|(members, function)| {
            ServedFunction { tool: "mcp", label: members["server_label"].as_str(), function, members }
        });
        let served = ServedFunctions::of([("mcp", Some("a")), ("empty", None)].into_iter(), entries);
        assert_eq!(served.on_server("a", None), ["a_read", "a_write"]);
        assert_eq!(served.on_server("b", Some("read")), ["b_read"]);
        assert!(served.on_server("c", None).is_empty() && served.on_server("b", Some("write")).is_empty());
        assert_eq!(served.first_of("mcp", &Some("b".to_owned())), Some("b_read"));
        assert_eq!(served.first_of("mcp", &None), None);
        assert_eq!(served.of_tool("empty"), Some(&[] as &[String]));
        assert!(served.has_label("a") && !served.has_label("c"));
        assert_eq!(served.of_tool("other"), None);
        assert_eq!(
            served.like("mcp", &members(&json!({"server_label": "a", "name": "write"}))),
            Some("a_write")
        );
        assert_eq!(served.like("mcp", &members(&json!({"server_label": "a"}))), None);
        assert_eq!(served.like("other", &Map::new()), None);
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_search_finds(
            said in prop::collection::vec(prop::collection::vec(("[ab]", "[xy]"), 0..4), 0..6),
            item in prop::collection::vec(("[abc]", "[xyz]"), 0..4),
        ) {
            let object = |pairs: &[(String, String)]| -> Map<String, Value> {
                pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
            };
            let functions: Vec<(String, Map<String, Value>)> =
                said.iter().enumerate().map(|(place, said)| (format!("f{place}"), object(said))).collect();
            let entries = functions.iter().map(|(function, members)| ServedFunction { tool: "t", label: None, function, members });
            let served = ServedFunctions::of(std::iter::once(("t", None)), entries);
            let item = object(&item);
            prop_assert_eq!(served.like("t", &item), searched(&functions, &item));
        }
    }
}
