//! `[[prompts]]`: prompt templates, which requests name in `prompt`.

use cofferdam_engine::request::{PromptRole, PromptTemplate, Prompts};

use super::document::Table;

/// The maximum length of an id or version, in bytes.
const NAME_BYTES_MAX: usize = 128;

pub(super) fn read(tables: &[Table<'_>]) -> Prompts {
    let mut known: Vec<(String, Option<String>)> = Vec::new();
    let mut templates = Vec::new();
    for table in tables {
        let id = table.required_text("id");
        let version = table.text("version");
        for name in version.iter().chain([&id]) {
            if name.value.is_empty() || name.value.len() > NAME_BYTES_MAX {
                name.reject(format!("expected 1 to {NAME_BYTES_MAX} bytes"));
            }
        }
        let version = version.map(|version| version.value);
        if known.iter().any(|(other, of)| *other == id.value && *of == version) {
            id.reject(format!("a prompt `{}` of this version exists already", id.value));
        }
        known.push((id.value.clone(), version.clone()));
        templates.push(PromptTemplate::new(id.value, version, messages(table)));
    }
    Prompts::new(templates)
}

/// The messages of a template: `text` is one developer message, `messages` are several of any role.
fn messages(table: &Table<'_>) -> Vec<(PromptRole, String)> {
    let text = table.text("text");
    let written = table.tables("messages");
    match (text, written.is_empty()) {
        (Some(text), true) => vec![(PromptRole::Developer, text.value)],
        (Some(text), false) => {
            text.reject("give either `text` or `messages`");
            Vec::new()
        }
        (None, true) => {
            table.value("", ()).reject("`text` or `messages` is missing");
            Vec::new()
        }
        (None, false) => written.iter().map(message).collect(),
    }
}

fn message(table: &Table<'_>) -> (PromptRole, String) {
    let written = table.required_text("role");
    let role = PromptRole::parse(&written.value).unwrap_or_else(|| {
        written.reject("expected system, developer, user or assistant");
        PromptRole::User
    });
    (role, table.required_text("content").value)
}
