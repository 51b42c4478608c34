//! `tour`: shows in a temporary directory what the program is for. It starts a host and an HTTPS
//! server, stores a secret, has a model call a tool that sends the secret to the server, and prints
//! what each side saw. All that is printed is read back from the host and the server.

mod client;
mod echo;
mod report;

use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

use super::{Action, Cli};
use crate::command::{Command, CommandOutcome, SecretCommand, Sensitive};
use crate::execute::execute;
use crate::failure::Failure;
use crate::host_process::{HostProcess, HostSetup};
use crate::options::Options;
use crate::start::{cache_directory, write_out};

use client::ask;
use echo::EchoServer;
use report::{Searched, TourReport};

/// The time for the whole tour.
const TIME_MAX: Duration = Duration::from_secs(30);
/// The name of the server. The top-level domain `test` is never in the DNS.
const SERVER_NAME: &str = "echo.test";
const WORKSPACE: &str = "tour";
const SECRET: &str = "tour_token";
const MODEL: &str = "local/demo";
const TOOL: &str = "service:http_request";
/// The most that is searched for the secret, in bytes.
const SEARCHED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What the tour does at the moment, for its error.
type TourStep<'s> = Cell<&'s str>;

/// Runs the tour and prints its report.
///
/// # Errors
///
/// The step that failed. Nothing is left on the disk in that case either.
pub(super) fn tour(options: &Options) -> Result<(), Failure> {
    let step = Cell::new("making a temporary directory");
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let waiting = waiting.map_err(Failure::system("a thread to wait on"))?;
    let report = waiting.block_on(within_its_time(options, &step));
    // A thread that waits for the host's socket may still run.
    waiting.shutdown_background();
    let report = report.map_err(|cause| Failure::Tour { step: step.get().to_owned(), cause })?;
    if options.json { write_out(&format!("{}\n", report.document())) } else { write_out(&report.text()) }
}

async fn within_its_time(options: &Options, step: &TourStep<'_>) -> Result<TourReport, String> {
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    tokio::select! {
        report = Box::pin(run(options, step)) => report,
        () = tokio::time::sleep(TIME_MAX) => Err(format!("not done {} s after the start", TIME_MAX.as_secs())),
        _ = interrupted.recv() => Err("interrupted".to_owned()),
        _ = terminated.recv() => Err("interrupted".to_owned()),
    }
}

async fn run(options: &Options, step: &TourStep<'_>) -> Result<TourReport, String> {
    let begun = Instant::now();
    let directory = TempDir::with_prefix("cofferdam-tour-").map_err(|error| error.to_string())?;
    step.set("starting an HTTPS server");
    let server = EchoServer::bind(SERVER_NAME).await.map_err(|error| error.to_string())?;
    let mut report = tokio::select! {
        never = server.serve() => match never {},
        report = Box::pin(with_server(options, step, directory.path(), &server)) => report?,
    };
    step.set("deleting the temporary directory");
    directory.close().map_err(|error| error.to_string())?;
    report.took_ms = begun.elapsed().as_millis();
    Ok(report)
}

async fn with_server(
    options: &Options,
    step: &TourStep<'_>,
    directory: &Path,
    server: &EchoServer,
) -> Result<TourReport, String> {
    step.set("writing the configuration");
    let (data, config) = (directory.join("data"), directory.join("cofferdam.toml"));
    std::fs::write(directory.join("root.pem"), &server.root).map_err(|error| error.to_string())?;
    std::fs::write(&config, configuration(server.address.port())).map_err(|error| error.to_string())?;

    step.set("starting the host");
    let setup = HostSetup {
        data: &data,
        config: &config,
        log: &directory.join("log.jsonl"),
        cache: &cache_directory(&options.data),
        arguments: &[],
    };
    let mut host = HostProcess::start(&setup).map_err(|error| error.to_string())?;
    let greeting = host.greeting().await?;
    let listen = greeting.get("listen").and_then(Value::as_str);
    let listen = listen.ok_or("the host printed no address")?.to_owned();
    let there = Options { data: data.clone(), config: Some(config), json: false };

    step.set("making a workspace, a key and a secret");
    let value = format!("canary-{}", uuid::Uuid::new_v4().simple());
    let lines = [
        format!("workspace create {WORKSPACE}"),
        format!("key create --workspace {WORKSPACE}"),
        format!("secret put {SECRET} --workspace {WORKSPACE} --host {SERVER_NAME}"),
    ];
    let [workspace, key, secret] = &lines;
    carry_out(&there, workspace, &value).await?;
    let key = carry_out(&there, key, &value).await?;
    let key = key.document.get("key").and_then(Value::as_str).ok_or("the host gave no key")?.to_owned();
    let key = Zeroizing::new(key);
    carry_out(&there, secret, &value).await?;

    step.set("asking the model");
    let url = format!("https://{SERVER_NAME}:{}/whoami", server.address.port());
    let prompt = format!("Send an HTTP request to {url} and tell me what came back.");
    let answer = ask(&listen, &key, MODEL, &prompt, TOOL).await?;
    let call = answer.tool_item(TOOL).ok_or("the model did not call the tool")?.clone();
    let mut received = server.received();
    let received =
        received.pop().ok_or_else(|| format!("no request came to the server; the call: {call}"))?;

    step.set("reading the audit log");
    let audit = carry_out(&there, "vault audit --action secret_released", &value).await?;
    let audit = audit.document.pointer("/records/0").cloned().ok_or("it has no record of the release")?;

    step.set("stopping the host");
    host.stop().await?;

    step.set("looking for the value of the secret");
    let searched = search(&value, &answer.bytes, host.log(), &data)?;
    if !received.authorization.as_deref().is_some_and(|sent| sent.contains(&value)) {
        return Err(format!("it did not reach the server: {received:?}"));
    }
    Ok(TourReport {
        commands: lines.iter().map(|line| format!("cofferdam {line}")).collect(),
        listen,
        model: MODEL,
        server: SERVER_NAME,
        secret: SECRET,
        value,
        prompt,
        call,
        events: answer.events,
        received,
        answer: answer.text(),
        searched,
        audit,
        took_ms: 0,
    })
}

/// The configuration of the tour's host. Only this host trusts the certificate and reaches loopback.
fn configuration(port: u16) -> String {
    format!(
        "[limits]\nstreams = 16\n\
         [store]\nfree_bytes_min = 0\n\
         [egress]\nports = [{port}]\nroots = [\"root.pem\"]\nallow_private = [\"127.0.0.1/32\"]\n\
         resolve = {{ \"{SERVER_NAME}\" = [\"127.0.0.1\"] }}\n\
         [plugins.tool-http-request]\nhosts = [\"{SERVER_NAME}\"]\nsecrets = [\"{SECRET}\"]\n"
    )
}

/// Runs a command line against the tour's host. `value` is the value of `secret put`.
async fn carry_out(there: &Options, line: &str, value: &str) -> Result<CommandOutcome, String> {
    let cli = Cli::try_parse_from(std::iter::once("cofferdam").chain(line.split(' ')));
    let Some(Action::Command(mut command)) = cli.map_err(|error| error.to_string())?.action else {
        return Err(format!("`{line}` is not a command for a store"));
    };
    if let Command::Secret(SecretCommand::Put { value: given, .. }) = &mut command {
        *given = Some(Sensitive::from(Zeroizing::new(value.to_owned())));
    }
    let there = there.clone();
    let done = tokio::task::spawn_blocking(move || execute(&there, &command)).await;
    let failed = |error: &dyn std::fmt::Display| format!("`cofferdam {line}`: {error}");
    done.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// Looks for the value in the answer, in the host's log and in its files.
///
/// # Errors
///
/// The value is in one of them, or one cannot be read.
fn search(value: &str, answer: &[u8], log: &Path, data: &Path) -> Result<Searched, String> {
    let mut searched = Searched { answer_bytes: answer.len(), ..Searched::default() };
    let mut found = String::new();
    let mut look = |what: &dyn std::fmt::Display, bytes: &[u8]| {
        if memchr::memmem::find(bytes, value.as_bytes()).is_some() {
            // Writing to a text cannot fail.
            write!(found, " {what}").unwrap_or_default();
        }
    };
    look(&"the answer", answer);
    let mut left = SEARCHED_BYTES_MAX;
    let mut folders = vec![data.to_owned()];
    let read = std::fs::read(log).map_err(|error| error.to_string())?;
    searched.log_bytes = read.len();
    look(&"the log", &read);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            let metadata = entry.metadata().map_err(|error| error.to_string())?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() {
                left = left.checked_sub(metadata.len()).ok_or("the files of the host are too large")?;
                let bytes = std::fs::read(entry.path()).map_err(|error| error.to_string())?;
                searched.files += 1;
                searched.file_bytes += bytes.len();
                look(&entry.path().display(), &bytes);
            }
        }
    }
    if found.is_empty() { Ok(searched) } else { Err(format!("it is in{found}")) }
}
