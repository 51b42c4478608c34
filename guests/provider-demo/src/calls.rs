//! Decides which of the offered functions a message asks for, and with which arguments.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use cofferdam_guest_kit::{Request, Tool, ToolChoice};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conversation::Conversation;
use crate::fill::Filler;
use crate::hints::Hints;
use crate::words;

/// The largest number of calls in one answer.
const CALLS_MAX: usize = 8;
/// How many bytes of a message, from its end, are compared with the functions on offer.
const MESSAGE_BYTES_MAX: usize = 4000;

/// A call the model makes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    /// Arguments as JSON text, or the input of a custom tool.
    pub(crate) input: String,
    pub(crate) custom: bool,
}

/// A tool that the client lets the model call.
#[derive(Debug, Clone, Copy)]
struct Offer<'a> {
    name: &'a str,
    namespace: Option<&'a str>,
    description: &'a str,
    /// The JSON Schema; `None` for a custom tool.
    parameters: Option<&'a str>,
}

/// The calls that the last message asks for and that were not made yet.
pub(crate) fn plan(request: &Request<'_>, conversation: &Conversation) -> Vec<Call> {
    let offers = offers(request);
    let forced = match &request.tool_choice {
        Some(ToolChoice::None) => return Vec::new(),
        Some(ToolChoice::Required | ToolChoice::Function { .. } | ToolChoice::Custom { .. }) => true,
        Some(ToolChoice::Allowed { required, .. }) => *required,
        Some(ToolChoice::Auto | ToolChoice::Other { .. }) | None => false,
    };
    let parallel = request.parallel_tool_calls.unwrap_or(true);
    let answered = !conversation.results.is_empty();
    // With parallel calls all calls were made in one turn, so results mean that nothing is left.
    if offers.is_empty() || (answered && parallel) {
        return Vec::new();
    }
    let message = clip(&conversation.message);
    let mut calls = wanted(&offers, message, forced && !answered);
    let mut called: HashMap<&str, usize> = HashMap::new();
    conversation.called.iter().for_each(|name| *called.entry(name).or_default() += 1);
    calls.retain(|call| match called.get_mut(&*call.name).filter(|left| **left > 0) {
        Some(left) => {
            *left -= 1;
            false
        }
        None => true,
    });
    calls.truncate(if parallel { CALLS_MAX } else { 1 });
    calls
}

/// The end of a long message, which is as likely as its start to say what is asked for.
fn clip(message: &str) -> &str {
    let start = message.ceil_char_boundary(message.len().saturating_sub(MESSAGE_BYTES_MAX));
    message.get(start..).unwrap_or_default()
}

/// The tools that `tool_choice` allows, including those inside namespaces.
fn offers<'a>(request: &'a Request<'_>) -> Vec<Offer<'a>> {
    let mut offers = Vec::new();
    for tool in &request.tools {
        match tool {
            Tool::Namespace { name, tools, .. } => {
                offers.extend(tools.iter().filter_map(|tool| offer(tool, Some(name))));
            }
            tool => offers.extend(offer(tool, None)),
        }
    }
    let allowed: HashSet<Option<&str>> = match &request.tool_choice {
        Some(ToolChoice::Allowed { tools, .. }) => tools.iter().map(|tool| tool.name.as_deref()).collect(),
        _ => HashSet::new(),
    };
    offers.retain(|offer| match &request.tool_choice {
        Some(ToolChoice::Function { name }) => offer.parameters.is_some() && offer.name == name,
        Some(ToolChoice::Custom { name }) => offer.parameters.is_none() && offer.name == name,
        Some(ToolChoice::Allowed { .. }) => {
            allowed.contains(&Some(offer.name)) || allowed.contains(&offer.namespace)
        }
        _ => true,
    });
    offers
}

fn offer<'a>(tool: &'a Tool<'_>, namespace: Option<&'a str>) -> Option<Offer<'a>> {
    let text = |text: &'a Option<Cow<'_, str>>| text.as_deref().unwrap_or_default();
    match tool {
        Tool::Function { name, description, parameters, .. } => Some(Offer {
            name,
            namespace,
            description: text(description),
            parameters: Some(parameters.map_or("{}", RawValue::get)),
        }),
        Tool::Custom { name, description, .. } => {
            Some(Offer { name, namespace, description: text(description), parameters: None })
        }
        Tool::Namespace { .. } | Tool::Other { .. } => None,
    }
}

fn wanted(offers: &[Offer<'_>], message: &str, forced: bool) -> Vec<Call> {
    let several = match offers {
        [_] if forced => Vec::new(),
        _ => clauses_with_offers(offers, message),
    };
    if several.len() > 1 {
        let mut calls: Vec<Call> = Vec::new();
        for (offer, clause) in several {
            let call = offer.call(clause);
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
        return calls;
    }
    let stems = words::stems(message);
    let scored = offers.iter().map(|offer| (offer, offer.score(message, &stems)));
    // Of equal scores the first offered function wins.
    let best = scored.rev().max_by_key(|(_, score)| score.points());
    match best {
        Some((offer, score)) if forced || score.is_match() => vec![offer.call(message)],
        _ => Vec::new(),
    }
}

/// Cuts a message that asks for several functions into one clause for each. A clause that asks for
/// no function belongs to the clause before it, unless it only names another object for the same
/// function (`the weather in Paris and London`).
fn clauses_with_offers<'a, 'o>(offers: &'o [Offer<'o>], message: &'a str) -> Vec<(&'o Offer<'o>, &'a str)> {
    let mut found: Vec<(&Offer<'_>, usize)> = Vec::new();
    for (start, end) in clauses(message) {
        let Some(clause) = message.get(start..end) else { continue };
        let stems = words::stems(clause);
        let named = offers
            .iter()
            .map(|offer| (offer, offer.score(clause, &stems)))
            .filter(|(_, score)| score.name > 0);
        let best = named.rev().max_by_key(|(_, score)| score.points()).map(|(offer, _)| offer);
        let same = || {
            let (offer, before) = *found.last()?;
            let mut before = Hints::of(message.get(before..start)?);
            let again =
                offer.takes_one_text() && before.next_name().is_some() && Hints::of(clause).is_only_a_name();
            again.then_some(offer)
        };
        if let Some(offer) = best.or_else(same) {
            found.push((offer, if found.is_empty() { 0 } else { start }));
        }
    }
    let ends = found.iter().skip(1).map(|(_, start)| *start).chain([message.len()]).collect::<Vec<_>>();
    let clause =
        |((offer, start), end): ((&'o Offer<'o>, usize), usize)| Some((offer, message.get(start..end)?));
    found.into_iter().zip(ends).filter_map(clause).collect()
}

/// The byte ranges of the clauses. A joining word belongs to the clause that follows it.
fn clauses(message: &str) -> Vec<(usize, usize)> {
    const JOINTS: [&str; 7] = [" and ", " then ", "; ", "\n", ". ", "? ", "! "];
    let mut starts = vec![0];
    for joint in JOINTS {
        starts.extend(message.match_indices(joint).map(|(at, _)| at + 1));
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([message.len()]);
    starts.iter().copied().zip(ends).collect()
}

/// How well a function fits a text.
#[derive(Debug, Clone, Copy)]
struct Score {
    /// Whether the text contains the whole name.
    spelled: bool,
    /// The number of words of the name that the text contains.
    name: usize,
    /// The number of words of the description that the text contains.
    description: usize,
}

impl Score {
    fn points(self) -> usize {
        usize::from(self.spelled) * 100 + self.name * 3 + self.description
    }

    fn is_match(self) -> bool {
        self.name > 0 || self.description > 1
    }
}

impl Offer<'_> {
    fn score(&self, text: &str, stems: &[String]) -> Score {
        let telling = |text: &str| {
            let mut stems = words::stems(text);
            stems.retain(|stem| !words::is_filler(stem));
            stems.sort_unstable();
            stems.dedup();
            stems
        };
        let spelled = text.to_lowercase().contains(&self.name.to_lowercase());
        let name =
            telling(self.name).iter().filter(|word| stems.iter().any(|stem| is_same(word, stem))).count();
        let description = telling(self.description).iter().filter(|word| stems.contains(word)).count();
        Score { spelled, name: name.max(usize::from(spelled)), description }
    }

    fn call(&self, message: &str) -> Call {
        let input = match self.parameters {
            Some(parameters) => {
                let schema: Value = serde_json::from_str(parameters).unwrap_or(Value::Null);
                match Filler::for_arguments(&schema, message, self.name).fill() {
                    Value::Object(arguments) if schema.is_object() && !is_empty(&schema) => {
                        Value::Object(arguments).to_string()
                    }
                    _ => "{}".to_owned(),
                }
            }
            None => Hints::of(message).next_quoted().unwrap_or_else(|| message.trim().to_owned()),
        };
        Call {
            name: self.name.to_owned(),
            namespace: self.namespace.map(str::to_owned),
            input,
            custom: self.parameters.is_none(),
        }
    }

    /// Whether the function has exactly one required argument and it is a string.
    fn takes_one_text(&self) -> bool {
        let Some(schema) = self.parameters.and_then(|json| serde_json::from_str::<Value>(json).ok()) else {
            return false;
        };
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let [name] = required else { return false };
        let property = name.as_str().and_then(|name| schema.get("properties")?.get(name));
        property.is_some_and(|property| property.get("type") == Some(&Value::from("string")))
    }
}

fn is_empty(schema: &Value) -> bool {
    schema.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Whether two words match. Words of four or more letters also match as a part of the other:
/// `time` matches `datetime`.
fn is_same(word: &str, stem: &str) -> bool {
    word == stem || (stem.len() >= 4 && word.contains(stem)) || (word.len() >= 4 && stem.contains(word))
}
