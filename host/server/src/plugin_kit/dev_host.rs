//! The host of `plugin dev`: a child process that serves what a project has built, with its data in
//! the project's folder `.cofferdam`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_runtime::manifest::PluginKind;
use cofferdam_runtime::{Asked, Manifest};
use serde_json::{Value, json};
use toml::Table;

use super::output::Elapsed;
use super::process::is_stopped;
use super::project::{FOLDER, Project, make_private_folder, read_component, write_file, wrong};
use crate::app::Addresses;
use crate::command::{Command, CreateKey, KeyCommand};
use crate::config::{Config, EndpointConfig};
use crate::execute::execute;
use crate::failure::Failure;
use crate::host_process::{HostProcess, HostSetup};
use crate::options::Options;
use crate::start::{block_on, pause};
use crate::wiring::plugins::is_built_in;

/// For how long a host may start, and for how long it may read its plugins again. Both include
/// compiling.
const READY_TIME_MAX: Duration = Duration::from_secs(300);
/// For how long a host may stop before it is killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// After how many days a key of this host ends.
const KEY_DAYS: u32 = 7;
const WORKSPACE: &str = "default";
const MODEL: &str = "local/demo";
/// The name of the plugin that orders the endpoints of every request.
const ROUTER: &str = "router";

/// Files of the host within the project.
pub(super) struct DevFolder {
    plugins: PathBuf,
    pub(super) log: PathBuf,
    /// The options of commands for this host.
    pub(super) options: Options,
    /// Whether the configuration is the author's own, which is not written here.
    has_own_config: bool,
    /// How many failing calls of the plugin are recorded.
    pub(super) record: Option<u32>,
}

impl DevFolder {
    /// Makes the folder. A configuration that `options` name is used as it is.
    pub(super) fn make(options: &Options, project: &Project, record: Option<u32>) -> Result<Self, Failure> {
        if let Some((config, record)) = options.config.as_ref().zip(record) {
            return Err(wrong(format!(
                "--record changes the configuration, and that of --config is never written: set `record = {record}` in \
                 [plugins.{}] of {} in place of --record",
                project.manifest.name,
                config.display()
            )));
        }
        let folder = std::path::absolute(project.dir.join(FOLDER)).map_err(Failure::system(FOLDER))?;
        make_private_folder(&folder)?;
        let config = options.config.as_deref().map(std::path::absolute).transpose();
        let config = config.map_err(Failure::system("--config"))?;
        Ok(Self {
            plugins: folder.join("plugins"),
            log: folder.join("log.jsonl"),
            has_own_config: config.is_some(),
            record,
            options: Options {
                data: folder.join("data"),
                config: Some(config.unwrap_or_else(|| folder.join("cofferdam.toml"))),
                json: false,
            },
        })
    }

    /// Writes the configuration, which grants all that the manifest asks for.
    pub(super) fn configure(&self, manifest: &Manifest) -> Result<(), Failure> {
        let Some(file) = self.options.config.as_ref().filter(|_| !self.has_own_config) else { return Ok(()) };
        let text = format!(
            "# Written by `cofferdam plugin dev`. `--config FILE` uses another configuration.\n{}",
            configuration(manifest, self.record)
        );
        write_file(file, text.as_bytes())
    }

    /// Where the host keeps recordings of failing calls.
    pub(super) fn recordings(&self) -> PathBuf {
        self.options.data.join("recordings")
    }

    /// A model whose requests come to the plugin, or what is missing for one.
    fn model_of(&self, manifest: &Manifest) -> Result<String, String> {
        let name = &manifest.name;
        match manifest.kind {
            PluginKind::Router if name != ROUTER => Err(format!(
                "It orders the endpoints of no request, because its name is not `{ROUTER}`. A router that also chooses models \
                 is called by its slugs."
            )),
            PluginKind::Provider => {
                let adapter = name.strip_prefix("provider-").unwrap_or(name);
                let config = Config::load(self.options.config.as_deref(), &self.options.data);
                let model = config.ok().and_then(|config| model_with(&config, adapter));
                model.ok_or_else(|| {
                    format!(
                        "No model is served by it. Write a provider with `adapter = \"{adapter}\"` and a model of that provider \
                         into a configuration, and start again with --config FILE."
                    )
                })
            }
            _ => Ok(MODEL.to_owned()),
        }
    }

    /// Puts the built plugin where the host reads it, in place of what is there.
    pub(super) fn install(&self, project: &Project) -> Result<(), Failure> {
        make_private_folder(&self.plugins)?;
        let failed = || Failure::system(self.plugins.display().to_string());
        let manifest = format!("{}.toml", project.manifest.name);
        let kept = [manifest.as_str(), project.manifest.component.as_str()];
        for entry in fs::read_dir(&self.plugins).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            if !kept.iter().any(|name| entry.file_name() == **name) {
                fs::remove_file(entry.path()).map_err(failed())?;
            }
        }
        let component = read_component(&project.require_component()?)?;
        write_file(&self.plugins.join(&project.manifest.component), &component)?;
        write_file(&self.plugins.join(&manifest), project.manifest_text.as_bytes())
    }
}

/// A model of a provider with this adapter.
fn model_with(config: &Config, adapter: &str) -> Option<String> {
    let provider = config.providers.iter().find(|provider| provider.adapter == adapter)?;
    let is_own = |endpoint: &EndpointConfig| endpoint.candidate.provider == provider.name;
    let model = config.models.iter().find(|model| model.endpoints.iter().any(is_own))?;
    Some(model.id.clone())
}

/// A configuration of a host for one author.
fn configuration(manifest: &Manifest, record: Option<u32>) -> Table {
    let list = |names: Vec<String>| -> toml::Value { names.into() };
    let mut plugin = Table::new();
    plugin.insert("compile".to_owned(), "start".into());
    if let Some(record) = record {
        plugin.insert("record".to_owned(), i64::from(record).into());
    }
    let hosts = match &manifest.hosts {
        Asked::Any => vec!["*".to_owned()],
        Asked::Named(hosts) => hosts.iter().map(ToString::to_string).collect(),
    };
    let imports = manifest.imports.iter().filter(|import| import.is_granted_by_name());
    for (key, names) in [
        ("hosts", hosts),
        ("secrets", manifest.secrets.named().map(ToString::to_string).collect()),
        ("imports", imports.map(ToString::to_string).collect()),
        ("placeholder_headers", manifest.placeholder_headers.iter().cloned().collect()),
    ] {
        if !names.is_empty() {
            plugin.insert(key.to_owned(), list(names));
        }
    }
    if is_built_in(&manifest.name) {
        plugin.insert("replaces".to_owned(), true.into());
    }
    let table =
        |key: &str, value: toml::Value| -> toml::Value { Table::from_iter([(key.to_owned(), value)]).into() };
    Table::from_iter([
        ("limits".to_owned(), table("streams", 16.into())),
        ("timeouts".to_owned(), table("drain_ms", 2_000.into())),
        ("plugins".to_owned(), table(&manifest.name, plugin.into())),
    ])
}

/// A running host and what it printed.
pub(super) struct DevHost {
    process: HostProcess,
    pub(super) at: Addresses,
    pub(super) key: String,
    /// The id of the key.
    key_id: String,
}

impl DevHost {
    /// Starts the host and makes a key. `None` if a signal stopped this program meanwhile.
    ///
    /// # Errors
    ///
    /// Why the host does not start, with the end of its log.
    pub(super) fn start(folder: &DevFolder) -> Result<Option<Self>, String> {
        let mut line = Elapsed::new("starting the host");
        let started = block_on(async {
            tokio::select! {
                host = start(folder) => host.map(Some),
                () = until_stopped(&mut line) => Ok(None),
            }
        });
        let Some((process, greeting)) = started.map_err(|error| error.to_string())?? else { return Ok(None) };
        let at = addresses(&greeting).ok_or("the host did not say where it listens")?;
        let made = execute(&folder.options, &create_key()).map_err(|error| error.to_string())?;
        Ok(Some(Self {
            process,
            at,
            key: text_of(&made.document, "key"),
            key_id: text_of(&made.document, "id"),
        }))
    }

    /// Makes the host read the plugins again, and waits until it serves with them.
    ///
    /// # Errors
    ///
    /// Why it does not, with the end of its log.
    pub(super) fn reload(&mut self, folder: &DevFolder) -> Result<(), String> {
        let mut line = Elapsed::new("loading the new component");
        let (done, refused) = reloads(folder)?;
        self.process.reload()?;
        let until = Instant::now() + READY_TIME_MAX;
        while Instant::now() < until && !is_stopped() {
            line.show();
            pause();
            if let Some(status) = self.process.ended() {
                return Err(format!("the host ended with {status}; its log:\n{}", self.process.log_end()));
            }
            let (done_now, refused_now) = reloads(folder)?;
            if refused_now > refused {
                return Err(format!("the host does not take it; its log:\n{}", self.process.log_end()));
            }
            if done_now > done {
                return Ok(());
            }
        }
        Err("the host did not load it".to_owned())
    }

    /// How the host ended, if it did without being told.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.process.ended()?;
        Some(format!("the host ended with {status}; its log:\n{}", self.process.log_end()))
    }

    /// Revokes the key and stops the host. What fails here is ended by the drop of the process.
    pub(super) fn stop(mut self, folder: &DevFolder) {
        let _line = Elapsed::new("stopping the host");
        let revoke = Command::Key(KeyCommand::Revoke { id: self.key_id.clone() });
        if let Err(error) = execute(&folder.options, &revoke) {
            tracing::debug!(%error, "the key of this run could not be revoked");
        }
        let stopped = block_on(async { tokio::time::timeout(STOP_TIME_MAX, self.process.stop()).await });
        if !matches!(stopped, Ok(Ok(Ok(())))) {
            tracing::warn!("the host did not stop in time and is killed");
        }
    }

    /// A command that calls the plugin, or what is missing for one.
    pub(super) fn curl(&self, manifest: &Manifest, folder: &DevFolder) -> Result<String, String> {
        let body = request(manifest, &folder.model_of(manifest)?).to_string().replace('\'', "'\\''");
        Ok(format!(
            "curl -N {}://{}/v1/responses -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{body}'",
            self.at.scheme(),
            self.at.listen,
            self.key
        ))
    }
}

/// The child must outlive this future on the thread that waits for it, so nothing here is spawned.
async fn start(folder: &DevFolder) -> Result<(HostProcess, Value), String> {
    let setup = HostSetup {
        data: &folder.options.data,
        config: folder.options.config.as_deref().unwrap_or_else(|| Path::new("")),
        log: &folder.log,
        cache: &crate::start::cache_directory(&folder.options.data),
        arguments: &[Path::new("--plugins"), &folder.plugins],
    };
    let mut host = HostProcess::start(&setup).map_err(|error| error.to_string())?;
    let greeting = match tokio::time::timeout(READY_TIME_MAX, host.greeting()).await {
        Ok(greeting) => greeting?,
        Err(_) => return Err(format!("the host does not start; its log:\n{}", host.log_end())),
    };
    Ok((host, greeting))
}

async fn until_stopped(line: &mut Elapsed) {
    while !is_stopped() {
        line.show();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn create_key() -> Command {
    Command::Key(KeyCommand::Create(CreateKey {
        workspace: Some(WORKSPACE.to_owned()),
        member: None,
        intern: None,
        provisioning: false,
        no_scope: false,
        name: Some("plugin dev".to_owned()),
        expires_days: Some(KEY_DAYS),
        limit_day: None,
        limit_week: None,
        limit_month: None,
        limit_total: None,
    }))
}

/// Where a host listens, by what it printed at its start.
fn addresses(greeting: &Value) -> Option<Addresses> {
    let address = |key: &str| text_of(greeting, key).parse().ok();
    let is_tls = greeting.get("tls")?.as_bool()?;
    Some(Addresses { listen: address("listen")?, admin: address("admin")?, is_tls })
}

/// A text of a JSON object; empty if there is none.
fn text_of(document: &Value, key: &str) -> String {
    document.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// How often the host has read its plugins again, and how often it refused what it read.
fn reloads(folder: &DevFolder) -> Result<(u64, u64), String> {
    let status = execute(&folder.options, &Command::Status).map_err(|error| error.to_string())?;
    let count = |key: &str| status.document.get("serving")?.get(key)?.as_u64();
    count("reloads").zip(count("reloads_refused")).ok_or_else(|| "the host is gone".to_owned())
}

/// The least that calls a plugin of this kind.
fn request(manifest: &Manifest, model: &str) -> Value {
    if let Some(tool) = &manifest.tool {
        let input = format!("{}: \"some text\"", manifest.description.trim_end_matches('.'));
        let tools = json!([{"type": format!("service:{}", tool.tool_type)}]);
        return json!({"model": model, "input": input, "stream": true, "tools": tools});
    }
    if let (PluginKind::Hook, Some(id)) = (manifest.kind, manifest.entry_id()) {
        return json!({"model": model, "input": "Hello!", "stream": true, "plugins": [{"id": id}]});
    }
    json!({"model": model, "input": "Hello!", "stream": true})
}

#[cfg(test)]
mod tests {
    use cofferdam_runtime::Manifest;

    use super::configuration;

    #[test]
    fn the_configuration_grants_what_the_manifest_asks_for() {
        let manifest = "name = \"t\"\nkind = \"tool\"\nversion = \"0.1.0\"\ndescription = \"d\"\n\
            imports = [\"http\", \"model\", \"clock\"]\nhosts = [\"a.test\"]\nsecrets = [\"key\"]\n\
            [tool]\ntype = \"t\"\n";
        let manifest = Manifest::parse(manifest).unwrap();
        assert!(!configuration(&manifest, None).to_string().contains("record"));
        let text = configuration(&manifest, Some(5)).to_string();
        for line in [
            "record = 5\n",
            "[plugins.t]\n",
            "compile = \"start\"\n",
            "hosts = [\"a.test\"]\n",
            "secrets = [\"key\"]\n",
            "imports = [\"model\"]\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }
}
