//! Imports secrets of an older system from JSON lines. The whole file is checked before anything is
//! written. The secrets are written in groups: after an interruption the first groups are stored,
//! and a second run imports the rest.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cofferdam_store::{Actor, LegacySecret, SecretName, SecretValue, Store, WorkspaceId};
use rustix::fs::OFlags;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::sensitive::Sensitive;
use super::{CommandError, Progress};

/// The maximum length of the file, in bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Secrets per commit.
const GROUP: usize = 32;

pub(super) struct Imported {
    pub(super) imported: u64,
    /// Names that already have a secret, which is kept.
    pub(super) kept: u64,
}

#[derive(Deserialize)]
struct ImportLine {
    name: String,
    value: Sensitive,
    #[serde(default)]
    created_at: Option<String>,
}

pub(super) fn import(
    file: &Path,
    workspace: WorkspaceId,
    store: &Store,
    progress: &mut Progress<'_>,
) -> Result<Imported, CommandError> {
    let mut secrets = parse(&read(file)?)?.into_iter();
    let of = secrets.len() as u64;
    let mut done = Imported { imported: 0, kept: 0 };
    loop {
        let group: Vec<LegacySecret> = secrets.by_ref().take(GROUP).collect();
        if group.is_empty() {
            return Ok(done);
        }
        let count = group.len() as u64;
        let written = store.import_legacy(Actor::Operator, workspace, group)?;
        done.imported += written;
        done.kept += count - written;
        if progress("secrets taken over", done.imported + done.kept, of).is_break() {
            return Err(CommandError::new("stopped; run it again for the rest"));
        }
    }
}

pub(crate) fn not_a_regular_file(file: &Path) -> CommandError {
    CommandError::new(format!("{} is not a regular file", file.display()))
}

fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let failed = |error: std::io::Error| CommandError::new(format!("{}: {error}", file.display()));
    // NONBLOCK: a running host would wait for the writer of a FIFO.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let source = OpenOptions::new().read(true).custom_flags(flags).open(file).map_err(failed)?;
    let metadata = source.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(not_a_regular_file(file));
    }
    let length = metadata.len();
    // Allocated at the length of the file: a buffer that grows would leave copies of its content
    // behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.min(FILE_BYTES_MAX) as usize + 1));
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandError::new(format!("{} is longer than 256 MiB: split it", file.display())));
    }
    Ok(bytes)
}

/// Parses all lines, or returns the first error. An error contains the line number and the kind of
/// mistake, never the line's content.
fn parse(bytes: &[u8]) -> Result<Vec<LegacySecret>, CommandError> {
    let mut secrets = Vec::new();
    let mut names = std::collections::BTreeMap::new();
    for (number, line) in (1_usize..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let secret = secret(line).map_err(|what| CommandError::new(format!("line {number}: {what}")))?;
        if let Some(first) = names.insert(secret.name.clone(), number) {
            return Err(CommandError::new(format!("line {number}: its name stands in line {first} already")));
        }
        secrets.push(secret);
    }
    Ok(secrets)
}

fn secret(line: &[u8]) -> Result<LegacySecret, String> {
    // The parser also takes a list of the values of the members.
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("not {name, value, created_at?} as JSON: no object".to_owned());
    }
    // The parser's error message could quote the line, so only the column is used.
    let line: ImportLine = serde_json::from_slice(line)
        .map_err(|error| format!("not {{name, value, created_at?}} as JSON (column {})", error.column()))?;
    let value = SecretValue::new(line.value.into()).map_err(|error| error.to_string())?;
    let name: SecretName =
        line.name.parse().map_err(|error: cofferdam_store::SecretNameError| error.to_string())?;
    let created_at_ms = line.created_at.as_deref().map(date).transpose()?;
    Ok(LegacySecret { name, value, created_at_ms })
}

fn date(text: &str) -> Result<u64, String> {
    let at: Option<jiff::Timestamp> = text.parse().ok();
    if at.is_some_and(|at| at > jiff::Timestamp::now()) {
        return Err("created_at lies in the future".to_owned());
    }
    let ms = at.and_then(|at| u64::try_from(at.as_millisecond()).ok());
    ms.ok_or_else(|| "created_at is not a time such as 2025-01-02T03:04:05Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn complaint(text: &str) -> String {
        parse(text.as_bytes()).err().unwrap().to_string()
    }

    #[test]
    fn import_lines_have_name_value_and_optional_date() {
        let text = "{\"name\":\"a\",\"value\":\"x\"}\n\n{\"name\":\"b\",\"value\":\"y\\n\",\"created_at\":\"2025-01-02T03:04:05.678Z\",\"more\":1}\n";
        let secrets = parse(text.as_bytes()).unwrap();
        let names: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let dates: Vec<Option<u64>> = secrets.iter().map(|secret| secret.created_at_ms).collect();
        assert_eq!(dates, [None, Some(1_735_787_045_678)]);
    }

    #[test]
    fn import_errors_name_the_line_and_never_its_content() {
        for (line, says) in [
            ("{\"name\":\"a\",\"value\":\"CANARY\"", "not {name, value"),
            ("[\"a\", \"CANARY\"", "not {name, value"),
            ("[\"a\", \"CANARY\"]", "not {name, value"),
            (
                "{\"name\":\"a\",\"value\":\"CANARY\",\"created_at\":\"9000-01-01T00:00:00Z\"}",
                "in the future",
            ),
            ("CANARY", "not {name, value"),
            ("{\"name\":\"CANARY\",\"value\":\"CANARY\"}", "a secret's name has"),
            ("{\"name\":\"a\",\"value\":[\"CANARY\"]}", "not {name, value"),
            ("{\"name\":\"a\",\"value\":\"CANARY\\ud800\"}", "not {name, value"),
            ("{\"name\":\"a\",\"value\":\"\"}", "a secret's value has"),
            ("{\"name\":\"a\",\"value\":\"CANARY\",\"created_at\":\"CANARY\"}", "created_at is not"),
            ("{\"name\":\"first\",\"value\":\"CANARY\"}", "stands in line 1"),
        ] {
            let complaint = complaint(&format!("{{\"name\":\"first\",\"value\":\"CANARY\"}}\n{line}\n"));
            assert!(complaint.starts_with("line 2: ") && complaint.contains(says), "{complaint}");
            assert!(!complaint.contains("CANARY"), "{complaint}");
        }
    }
}
