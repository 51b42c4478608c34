//! Questions to models through the host: their settings, and the messages when there is no answer.

use cofferdam_protocol::{ToolClass, ToolKind, split_prefix};
use cofferdam_text::clip;
use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::bindings::model::{self, Answer};
use crate::bindings::model_panel;
use crate::bindings::tools::{Function, Output, ToolError};
use crate::bindings::types::{ErrorKind, Failure};

/// The largest number of tools that one question may have.
const TOOLS_MAX: usize = 8;
/// The longest name of an entry, in characters.
const NAME_CHARS_MAX: usize = 64;
/// The longest name of a function, in bytes.
const FUNCTION_BYTES_MAX: usize = 64;

/// Asks models. There are two implementations: the host, and scripted answers for tests.
pub trait Models {
    /// Asks one model and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is no answer.
    fn ask(&mut self, request: &Value) -> Result<Answer, Failure>;

    /// Asks several models at the same time and waits for all. The results are in the order of the
    /// requests.
    fn ask_all(&mut self, requests: &[Value]) -> Vec<Result<Answer, Failure>>;
}

/// The models of the host. Their cost is added to the request being served.
#[derive(Debug)]
pub struct Service;

impl Models for Service {
    fn ask(&mut self, request: &Value) -> Result<Answer, Failure> {
        model::ask(request.to_string().as_bytes())
    }

    fn ask_all(&mut self, requests: &[Value]) -> Vec<Result<Answer, Failure>> {
        let requests: Vec<_> = requests.iter().map(|request| request.to_string().into_bytes()).collect();
        model_panel::ask_all(&requests)
    }
}

/// How one tool entry asks its models: the parameters that such tools have in common.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manner {
    /// The model; absent means that of the request being served.
    pub model: Option<String>,
    /// The system instructions of the question.
    pub instructions: Option<String>,
    temperature: Option<f64>,
    reasoning: Option<Value>,
    max_output_tokens: Option<u32>,
    cache_control: Option<Value>,
    tools: Vec<Value>,
    max_tool_calls: u32,
}

impl Manner {
    /// Reads `model`, `instructions`, `temperature`, `reasoning`, `max_completion_tokens`,
    /// `cache_control`, `tools` and `max_tool_calls`. `max_tool_calls` is `calls_default` when absent
    /// and at most `calls_max`. `tool` is the type of the tool that asks; a question must not have it
    /// among its own tools, because it could then ask itself without end.
    ///
    /// # Errors
    ///
    /// When a field is wrong; the message names it.
    pub fn read(fields: &Fields, tool: &str, calls_default: u32, calls_max: u32) -> Result<Self, ToolError> {
        let temperature = fields.number("temperature", 0.0..=f64::MAX)?;
        if temperature.is_some_and(|temperature| temperature > 2.0) {
            return Err(fields.wrong("temperature", "must be a number from 0 to 2"));
        }
        Ok(Self {
            model: filled(fields, "model")?,
            instructions: fields.text("instructions")?.map(str::to_owned),
            temperature,
            reasoning: fields.object("reasoning")?.cloned().map(Value::Object),
            max_output_tokens: fields.integer("max_completion_tokens", 1..=u32::MAX)?,
            cache_control: fields.object("cache_control")?.cloned().map(Value::Object),
            tools: tools(fields, tool)?,
            max_tool_calls: fields.integer("max_tool_calls", 1..=calls_max)?.unwrap_or(calls_default),
        })
    }

    /// A question to `model`, or to the model of the entry when `model` is absent.
    #[must_use]
    pub fn question(&self, model: Option<&str>, input: Value) -> Map<String, Value> {
        let mut request = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                request.insert(name.to_owned(), value);
            }
        };
        set("model", model.or(self.model.as_deref()).map(Value::from));
        set("instructions", self.instructions.as_deref().map(Value::from));
        set("input", Some(input));
        set("temperature", self.temperature.map(Value::from));
        set("reasoning", self.reasoning.clone());
        set("max_output_tokens", self.max_output_tokens.map(Value::from));
        set("cache_control", self.cache_control.clone());
        if !self.tools.is_empty() {
            set("tools", Some(Value::from(self.tools.clone())));
            set("max_tool_calls", Some(Value::from(self.max_tool_calls)));
        }
        request
    }
}

fn tools(fields: &Fields, own: &str) -> Result<Vec<Value>, ToolError> {
    const NAME: &str = "tools";
    let Some(value) = fields.value(NAME) else { return Ok(Vec::new()) };
    let tools = value.as_array().filter(|tools| tools.len() <= TOOLS_MAX);
    let tools =
        tools.ok_or_else(|| fields.wrong(NAME, &format!("must be a list of at most {TOOLS_MAX} tools")))?;
    for (place, tool) in tools.iter().enumerate() {
        let path = format!("{NAME}[{place}].type");
        let Some(kind) = tool.get("type").and_then(Value::as_str) else {
            return Err(fields.wrong(&path, "must be the type of a tool"));
        };
        let bare = split_prefix(kind).map(|(_, name)| name);
        if bare == Some(own) {
            return Err(fields.wrong(&path, "must be another tool than the one it is given to"));
        }
        if ToolKind::of_type(bare.unwrap_or(kind)).is_some_and(needs_client) {
            return Err(fields.wrong(&path, "must be a tool that this service runs, not the client"));
        }
    }
    Ok(tools.clone())
}

/// Whether a client runs tools of the kind. A question has no client, so it cannot have such tools.
/// `tool_search` without more is a tool of this service.
fn needs_client(kind: &ToolKind) -> bool {
    kind.class() == ToolClass::Client && *kind != ToolKind::ToolSearch
}

/// An optional string that must not be blank.
fn filled(fields: &Fields, name: &str) -> Result<Option<String>, ToolError> {
    match fields.text(name)?.map(str::trim) {
        Some("") => Err(fields.wrong(name, "must be a string that is not empty")),
        text => Ok(text.map(str::to_owned)),
    }
}

/// The default and the limit for the number of calls of an instance's own tools.
const CALLS_DEFAULT: u32 = 10;
const CALLS_MAX: u32 = 25;

/// One of several entries of the same tool, distinguished by `name`. Each has a function that asks a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// The name as the client wrote it; absent for the only or default entry.
    pub name: Option<String>,
    /// The name of the function that this entry offers.
    pub function: String,
    /// How the entry asks its model.
    pub manner: Manner,
}

impl Instance {
    /// Reads `name` and the parameters of [`Manner`]. The function is named after the tool, followed by the
    /// letters and digits of the entry's name.
    ///
    /// # Errors
    ///
    /// When no function name can be made of the name, or another field is wrong.
    pub fn read(fields: &Fields, tool: &str) -> Result<Self, ToolError> {
        let name = filled(fields, "name")?;
        let function =
            name.as_deref().map_or(Ok(tool.to_owned()), |name| function_name(fields, tool, name))?;
        Ok(Self { name, function, manner: Manner::read(fields, tool, CALLS_DEFAULT, CALLS_MAX)? })
    }

    /// A sentence for the description of the function: what the client told the model that is asked.
    #[must_use]
    pub fn told(&self, who: &str) -> String {
        let told = |instructions| format!(" This {who} was told: {}", clip(instructions, 300).text);
        self.manner.instructions.as_deref().map(told).unwrap_or_default()
    }

    /// Asks `model`, or the model of the entry when `model` is absent. `instructions` are for an entry that
    /// has none. Also returns the model that answered, or that was asked.
    pub fn ask(
        &self,
        model: Option<&str>,
        input: Value,
        instructions: &str,
        models: &mut impl Models,
    ) -> (Result<Answer, Failure>, Option<String>) {
        let mut question = self.manner.question(model, input);
        question.entry("instructions").or_insert_with(|| Value::from(instructions));
        let answer = models.ask(&Value::Object(question));
        let asked = model.or(self.manner.model.as_deref());
        let model = answer.as_ref().ok().map(|answer| answer.model.as_str()).or(asked).map(str::to_owned);
        (answer, model)
    }

    /// The entry's function. Output items of its calls carry the entry's name from their start. When a
    /// client sends such an item back, the host finds the function by that name.
    #[must_use]
    pub fn function(&self, description: &str, mut parameters: Map<String, Value>) -> Function {
        if let Some(name) = &self.name {
            parameters.insert("x-item".to_owned(), json!({ "instance_name": name }));
        }
        Function::new(&self.function, description, parameters)
    }
}

/// The name of the function of an entry with this name.
fn function_name(fields: &Fields, tool: &str, name: &str) -> Result<String, ToolError> {
    let letter = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '_' };
    let slug: String = name.chars().map(letter).collect();
    let slug = slug.trim_matches('_');
    if slug.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        let takes = format!("must hold a letter a-z or a digit and at most {NAME_CHARS_MAX} characters");
        return Err(fields.wrong("name", &takes));
    }
    let mut function = format!("{tool}_{slug}");
    function.truncate(FUNCTION_BYTES_MAX);
    Ok(function)
}

/// The text of an answer, or a message for models and clients why there is none.
///
/// # Errors
///
/// The message, when there is no answer or an empty one.
pub fn text_of(answer: &Result<Answer, Failure>) -> Result<&str, String> {
    match answer {
        Ok(answer) if answer.text.trim().is_empty() => Err("The model gave an empty answer.".to_owned()),
        Ok(answer) => Ok(&answer.text),
        Err(failure) => Err(sentence(failure)),
    }
}

/// The message for a failure: whether the question was refused, and the text of the host or provider.
fn sentence(failure: &Failure) -> String {
    let message = failure.message.trim();
    match failure.kind {
        ErrorKind::InvalidRequest | ErrorKind::InvalidPrompt | ErrorKind::NotFound => {
            format!("The question was refused: {message}")
        }
        _ if message.is_empty() => "The model gave no answer.".to_owned(),
        _ => message.to_owned(),
    }
}

/// The members of an output item that have a value.
pub fn members<'a>(given: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Map<String, Value> {
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?)))).collect()
}

/// The output of a failed call. `members` become fields of the item, together with `error`. Its cost is
/// zero, because the host has already charged the models that were asked.
#[must_use]
pub fn failed(mut members: Map<String, Value>, error: &str) -> Output {
    members.insert("status".to_owned(), Value::from("failed"));
    members.insert("error".to_owned(), Value::from(error));
    Output::new(json!({ "error": error }).to_string(), members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &Value) -> Fields {
        Fields::settings(json.to_string().as_bytes()).unwrap()
    }

    fn message<T>(result: Result<T, ToolError>) -> String {
        match result {
            Err(ToolError::InvalidSettings(message)) => message,
            _ => panic!("this is taken"),
        }
    }

    #[test]
    fn a_question_has_the_settings_of_the_entry_only() {
        let plain = Manner::read(&fields(&json!({})), "t", 3, 9).unwrap();
        assert_eq!(Value::Object(plain.question(None, json!("x"))), json!({"input": "x"}));
        let all = json!({
            "model": "a/b", "instructions": "Be brief.", "temperature": 0.5, "reasoning": {"effort": "low"},
            "max_completion_tokens": 7, "cache_control": {"type": "ephemeral"},
            "tools": [{"type": "service:datetime"}]
        });
        let all = Manner::read(&fields(&all), "t", 3, 9).unwrap();
        assert_eq!(
            Value::Object(all.question(Some("c/d"), json!("x"))),
            json!({
                "model": "c/d", "instructions": "Be brief.", "input": "x", "temperature": 0.5,
                "reasoning": {"effort": "low"}, "max_output_tokens": 7, "cache_control": {"type": "ephemeral"},
                "tools": [{"type": "service:datetime"}], "max_tool_calls": 3
            })
        );
    }

    #[test]
    fn wrong_settings_are_named() {
        for (settings, starts) in [
            (json!({"model": " "}), "parameters.model must be"),
            (json!({"temperature": 2.1}), "parameters.temperature must be a number from 0 to 2"),
            (json!({"reasoning": "high"}), "parameters.reasoning must be an object"),
            (json!({"max_completion_tokens": 0}), "parameters.max_completion_tokens must be"),
            (json!({"max_tool_calls": 10}), "parameters.max_tool_calls must be a whole number from 1 to 9"),
            (json!({"tools": {}}), "parameters.tools must be a list"),
            (json!({"tools": vec![json!({"type": "service:x"}); 9]}), "parameters.tools must be a list"),
            (json!({"tools": [{"type": "service:x"}, {}]}), "parameters.tools[1].type must be the type"),
            (
                json!({"tools": [{"type": "function", "name": "f"}]}),
                "parameters.tools[0].type must be a tool that",
            ),
            (json!({"tools": [{"type": "openrouter:t"}]}), "parameters.tools[0].type must be another tool"),
        ] {
            let message = message(Manner::read(&fields(&settings), "t", 3, 9));
            assert!(message.starts_with(starts), "{settings}: {message}");
        }
    }

    #[test]
    fn instances_have_functions_of_their_own() {
        let read = |name: Value| Instance::read(&fields(&json!({"name": name})), "advisor");
        for (name, function) in [
            (Value::Null, "advisor"),
            (json!("Reviewer"), "advisor_reviewer"),
            (json!(" plan-reviewer (1) "), "advisor_plan_reviewer__1"),
        ] {
            assert_eq!(read(name).unwrap().function, function);
        }
        assert_eq!(read(json!("x".repeat(64))).unwrap().function.len(), 64);
        for name in [json!(""), json!("日本"), json!("x".repeat(65)), json!(7)] {
            assert!(message(read(name)).starts_with("parameters.name must"));
        }
    }

    #[test]
    fn failures_name_their_cause() {
        let failure = |kind, message: &str| Err(Failure::new(kind, message));
        for (kind, message, told) in [
            (ErrorKind::NotFound, "There is no model a/b", "The question was refused: There is no model a/b"),
            (ErrorKind::ProviderUnavailable, "Provider returned error", "Provider returned error"),
            (ErrorKind::Server, "", "The model gave no answer."),
        ] {
            assert_eq!(text_of(&failure(kind, message)).unwrap_err(), told);
        }
    }
}
