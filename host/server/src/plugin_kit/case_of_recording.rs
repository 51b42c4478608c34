//! Writes a recorded call as a case of `plugin test`: its input, the operator's settings, the time,
//! and what its imports or the provider's server answered. What a case cannot say is told in comments
//! at the top of the file.

mod answers;
mod plain;
mod provider;
mod router;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use cofferdam_runtime::Recording;
use serde::Serialize;
use serde_json::Value;

use super::project::{TEXT_BYTES_MAX, wrong};
use crate::failure::Failure;
use crate::timestamp::timestamp;

use answers::ScriptedCall;
use plain::PlainValues;
use provider::RecordedAttempt;
use router::RecordedChoice;

#[derive(Serialize)]
struct CaseFile {
    case: [RecordedCase; 1],
}

/// A case with the keys that `cases` reads.
#[derive(Serialize)]
struct RecordedCase {
    name: String,
    now: String,
    #[serde(skip_serializing_if = "is_empty")]
    config: toml::Value,
    #[serde(flatten)]
    input: RecordedInput,
    #[serde(flatten)]
    imports: ScriptedCall,
}

/// What the plugin was called with.
#[derive(Serialize)]
#[serde(untagged)]
enum RecordedInput {
    Tool {
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<RecordedFunction>,
        settings: toml::Value,
    },
    Hook {
        request: toml::Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<toml::Value>,
        settings: toml::Value,
    },
    Provider(Box<RecordedAttempt>),
    Router(RecordedChoice),
}

#[derive(Serialize)]
struct RecordedFunction {
    function: String,
    arguments: toml::Value,
}

fn is_empty(value: &toml::Value) -> bool {
    value.as_table().is_none_or(toml::Table::is_empty)
}

/// Writes the recorded call into a new file. The case passes when the call does not fail any more.
///
/// # Errors
///
/// The call is none that a case can make, or the file cannot be written.
pub(super) fn write_case(recording: &Recording, file: &Path) -> Result<(), Failure> {
    let text =
        text_of(recording).map_err(|why| wrong(format!("no case can be made of this recording: {why}")))?;
    let failed = |error| Failure::system(file.display().to_string())(error);
    let mut file = OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// The text of the file, or why there is none.
fn text_of(recording: &Recording) -> Result<String, String> {
    let mut values = PlainValues::default();
    let input = input(recording, &mut values)?;
    let config = values.plain(&recording.head.grant.settings, "the operator's settings")?;
    let imports = ScriptedCall::of(recording, &mut values)?;
    let end = &recording.end;
    let called = match &input {
        RecordedInput::Tool { call: Some(call), .. } => call.function.as_str(),
        _ => end.function.as_str(),
    };
    let name = format!("{called} {}", end.message);
    let now = timestamp(imports.wall_ms.unwrap_or(recording.head.now_ms));
    let case = RecordedCase { name, now, config, input, imports };
    let case = toml::to_string(&CaseFile { case: [case] });
    let case = case.map_err(|error| format!("it cannot be written as TOML: {error}"))?;
    let mut text = format!(
        "# A recorded call of {}, which {}. Add what the answer has to be: expect = {{ ... }}.\n",
        recording.head.plugin, end.message
    );
    text.extend(values.notes().map(|note| format!("# {note}\n")));
    text.push_str(&case);
    match text.len() as u64 {
        ..=TEXT_BYTES_MAX => Ok(text),
        bytes => {
            Err(format!("the case has {bytes} bytes, and `plugin test` reads files of {TEXT_BYTES_MAX}"))
        }
    }
}

/// The input of the recorded call.
fn input(recording: &Recording, values: &mut PlainValues) -> Result<RecordedInput, String> {
    let Some((called, _)) = recording.first_call() else {
        return Err("the plugin failed while it was started, before it was called".to_owned());
    };
    let mut input = |index, what: &str| {
        let bytes = recording.first_input(index);
        let value: Option<Value> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        values.plain(&value.ok_or_else(|| format!("{what} are not JSON"))?, what)
    };
    Ok(match called {
        "functions" => RecordedInput::Tool { call: None, settings: input(0, "the settings")? },
        "invoke" => {
            let function = recording.first_function().ok_or("it names no function")?;
            let arguments = input(1, "the arguments")?;
            let call = Some(RecordedFunction { function, arguments });
            RecordedInput::Tool { call, settings: input(2, "the settings")? }
        }
        "on-request" => RecordedInput::Hook {
            request: input(0, "the members of the request")?,
            response: None,
            settings: input(1, "the settings")?,
        },
        "on-response" => RecordedInput::Hook {
            request: input(0, "the members of the request")?,
            response: Some(input(1, "the members of the response")?),
            settings: input(2, "the settings")?,
        },
        "generation.prepare" | "embedding.prepare" => {
            RecordedInput::Provider(Box::new(RecordedAttempt::of(recording, values)?))
        }
        "route" | "choose" => RecordedInput::Router(RecordedChoice::of(recording, values)?),
        called => return Err(format!("it is a call of {called}, and no case makes one alone")),
    })
}
