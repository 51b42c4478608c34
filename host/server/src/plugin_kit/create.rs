//! `plugin new`: writes a project from the templates in `plugin-templates/`, which are part of the
//! program.

use cofferdam_runtime::ContractLine;
use cofferdam_runtime::manifest::{Import, PluginKind};
use serde_json::json;

use super::project::{make_folder, write_file, wrong};
use super::wit;
use crate::command::{CommandOutcome, Language, NewArguments, NewKind};
use crate::failure::Failure;

/// Path and text of a file of the templates.
const TEMPLATES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/plugin_templates.rs"));

pub(super) fn create(arguments: &NewArguments) -> Result<CommandOutcome, Failure> {
    let NewArguments { kind, name, lang, imports } = arguments;
    let (kind, lang) = (PluginKind::from(*kind), lang.as_str());
    refuse_imports(kind, imports)?;
    let source = format!("source/{kind}-{lang}/");
    if !TEMPLATES.iter().any(|(path, _)| path.starts_with(&source)) {
        return Err(wrong(format!("no template of a {kind} in {lang}; there are {}", sources())));
    }
    let adapter = name.strip_prefix("provider-").unwrap_or_default();
    if kind == PluginKind::Provider && adapter.is_empty() {
        return Err(wrong(format!(
            "{name} could not be used: a configuration names a provider's plugin by `adapter = \"NAME\"`, which is the \
             plugin provider-NAME; call it provider-{name}"
        )));
    }
    let dir = std::path::PathBuf::from(name);
    if dir.exists() {
        return Err(wrong(format!("{name} exists already: choose another name, or remove it")));
    }
    let values = values(kind, name, imports);
    for layer in ["common/".to_owned(), format!("kind/{kind}/"), format!("lang/{lang}/"), source] {
        for (path, text) in TEMPLATES {
            let Some(path) = path.strip_prefix(&layer) else { continue };
            let path = dir.join(path.strip_suffix(".in").unwrap_or(path));
            if let Some(folder) = path.parent() {
                make_folder(folder)?;
            }
            write_file(&path, filled(text, &values).as_bytes())?;
        }
    }
    wit::write_to(&dir.join(ContractLine::FOLDER), ContractLine::newest())?;
    Ok(CommandOutcome {
        text: format!(
            "{name}: a {kind} in {lang}\n\n  cd {name}\n  cofferdam plugin build\n  cofferdam plugin check\n  \
             cofferdam plugin test\n  cofferdam serve --plugins plugins\n\n\
             cofferdam plugin dev does all of this, again after every change.\n"
        ),
        document: json!({"name": name, "kind": kind.as_str(), "lang": lang, "dir": dir}),
    })
}

impl Language {
    fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "js",
            Self::Python => "python",
            Self::C => "c",
        }
    }
}

impl From<NewKind> for PluginKind {
    fn from(kind: NewKind) -> Self {
        match kind {
            NewKind::Tool => Self::Tool,
            NewKind::Hook => Self::Hook,
            NewKind::Router => Self::Router,
            NewKind::Provider => Self::Provider,
        }
    }
}

/// The combinations of kind and language, such as `tool in rust`.
fn sources() -> String {
    let mut names: Vec<String> = Vec::new();
    for (path, _) in TEMPLATES {
        let name = path.strip_prefix("source/").and_then(|rest| rest.split('/').next());
        let name = name.map(|name| name.replacen('-', " in ", 1));
        names.extend(name.filter(|name| !names.contains(name)));
    }
    names.join(", ")
}

fn refuse_imports(kind: PluginKind, imports: &[Import]) -> Result<(), Failure> {
    let allowed = kind.optional_imports();
    let Some(import) = imports.iter().find(|import| !allowed.contains(import)) else { return Ok(()) };
    let allowed: Vec<&str> = allowed.iter().map(|import| import.as_str()).collect();
    let there_are = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    Err(wrong(format!("--imports: a {kind} cannot have {import}; it can have {there_are}")))
}

/// What stands for the `{{...}}` of the templates.
fn values(kind: PluginKind, name: &str, imports: &[Import]) -> Vec<(&'static str, String)> {
    let contract = ContractLine::newest();
    let lines = |verb: &str, interfaces: Vec<&str>| -> String {
        let line = |interface: &str| format!("  {verb} {};\n", contract.interface_name(interface));
        interfaces.into_iter().map(line).collect()
    };
    let exports = match kind {
        PluginKind::Tool => vec!["tools"],
        PluginKind::Hook => vec!["on-request"],
        PluginKind::Router => vec!["routing"],
        PluginKind::Provider => vec!["dialect", "generation"],
    };
    let interfaces = imports.iter().flat_map(|import| import.interfaces()).copied().collect();
    vec![
        ("{{name}}", name.to_owned()),
        ("{{crate}}", name.replace('-', "_")),
        ("{{type}}", name.replace('-', "_")),
        ("{{kind}}", kind.to_string()),
        ("{{asks}}", asks(imports)),
        ("{{world_imports}}\n", lines("import", interfaces)),
        ("{{world_exports}}", format!("\n{}", lines("export", exports))),
    ]
}

/// The lines of the manifest that ask for these imports.
fn asks(imports: &[Import]) -> String {
    let quoted: Vec<String> = imports.iter().map(|import| format!("{:?}", import.as_str())).collect();
    let mut lines = format!("imports = [{}]\n", quoted.join(", "));
    if imports.contains(&Import::Http) {
        lines.push_str("hosts = [\"api.example.com\"]\n");
    }
    lines
}

fn filled(text: &str, values: &[(&'static str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}
