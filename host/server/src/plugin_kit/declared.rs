//! `plugin inspect`: what a component declares.

use std::path::Path;

use cofferdam_runtime::{Inspection, SandboxNeeds};
use serde_json::{Value, json};

use super::Checked;
use super::project::read_component;
use crate::command::CommandOutcome;
use crate::failure::Failure;

pub(super) fn inspect(file: &Path) -> Result<Checked, Failure> {
    let inspection = Inspection::of(&read_component(file)?);
    let accepted = match &inspection.verdict {
        Ok(fit) => {
            let kind = fit.kind.map_or("of no kind", |kind| kind.as_str());
            let imports: Vec<&str> = fit.imports.iter().map(|import| import.as_str()).collect();
            let asks = match imports.as_slice() {
                [] => "no `imports`".to_owned(),
                imports => format!("imports = [\"{}\"]", imports.join("\", \"")),
            };
            format!("yes: a {kind} of line {}; its manifest needs {asks}", fit.line.name())
        }
        Err(error) => format!("no: it {error}"),
    };
    let needs = inspection.sandbox;
    let fit = inspection.verdict.as_ref().ok();
    let line = fit.map(|fit| fit.line.name());
    let mut text = format!(
        "{}, {} bytes\nsha256    {}\naccepted  {accepted}\nsandbox   {}\n",
        file.display(),
        inspection.bytes,
        inspection.digest,
        sandbox(needs)
    );
    for (title, names) in [("exports", &inspection.exports), ("imports", &inspection.imports)] {
        if !names.is_empty() {
            text.push_str(&format!("{title}\n"));
        }
        text.extend(names.iter().map(|name| format!("  {name}\n")));
    }
    let refusal: Value = inspection.verdict.as_ref().err().map(ToString::to_string).into();
    let outcome = CommandOutcome {
        text,
        document: json!({
            "file": file, "bytes": inspection.bytes, "sha256": inspection.digest,
            "kind": fit.and_then(|fit| fit.kind).map(|kind| kind.as_str()),
            "line": line, "version": fit.map(|fit| &fit.version),
            "refusal": refusal, "exports": inspection.exports, "imports": inspection.imports,
            "core_instances": needs.core_instances, "memories": needs.memories, "tables": needs.tables,
        }),
    };
    Ok(Checked { outcome, wrong: usize::from(inspection.verdict.is_err()), what: "check" })
}

/// What one instance takes, each with the limit.
pub(super) fn sandbox(needs: SandboxNeeds) -> String {
    let most = SandboxNeeds::LIMITS;
    format!(
        "{} of {} core instances, {} of {} memories, {} of {} tables",
        needs.core_instances, most.core_instances, needs.memories, most.memories, needs.tables, most.tables
    )
}
