//! A new store in a database, and its hosts.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use cofferdam_test_postgres::Pair;
use serde_json::Value;

use crate::site::{Build, ModelScript, Program, Site, run_command};

/// Rates without a limit that a load could meet.
pub(crate) const LIMITS: &str = "[limits]\nconcurrent_per_key = 0\nrequests_per_minute = 0\n";

/// What a new store and its hosts are like.
pub(crate) struct Kind<'a> {
    /// The name of its database and of the folders of its hosts.
    pub(crate) name: &'a str,
    /// `store.ledger`
    pub(crate) ledger: &'a str,
    /// The table `limits`.
    pub(crate) limits: &'a str,
}

/// A new store in a database.
pub(crate) struct CreatedStore {
    /// The name of its database.
    pub(crate) database: String,
    /// Its first key.
    pub(crate) key: String,
    config: String,
    /// Where the folders of its hosts are, without their numbers.
    folders: PathBuf,
}

impl CreatedStore {
    pub(crate) async fn new(
        build: &Build,
        site: &Site,
        pair: &Pair,
        kind: &Kind<'_>,
    ) -> anyhow::Result<Self> {
        let Kind { name, ledger, limits } = kind;
        let database = pair.primary.database(name)?;
        let secrets = site.folder.path().join(format!("{name}-secrets"));
        std::fs::create_dir(&secrets)?;
        let (password, root_key) = (secrets.join("password"), secrets.join("root.key"));
        write_secret(&password, &database.password)?;
        let tables = format!(
            "{limits}[store]\nurl = \"postgres://{}@127.0.0.1:{}/{}\"\npassword = \"file:{}\"\n\
             ledger = \"{ledger}\"\n[vault]\nroot_key = \"file:{}\"\n",
            database.user,
            database.port,
            database.name,
            password.display(),
            root_key.display()
        );
        let config = site.config(&tables, &[ModelScript::new("whole")]);
        let folders = site.folder.path().join(name);
        let mut store = Self { database: database.name, key: String::new(), config, folders };
        let folder = store.folder(0)?;
        store.key = key_of(&run_command(&build.path, &folder, &["store", "create"], "").await?)?;
        Ok(store)
    }

    /// The folder of a host, with its configuration.
    fn folder(&self, number: usize) -> anyhow::Result<PathBuf> {
        let mut folder = self.folders.clone().into_os_string();
        folder.push(format!("-{number}"));
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("cofferdam.toml"), &self.config)?;
        Ok(folder)
    }

    /// Starts a host.
    pub(crate) async fn host(&self, build: &Build, number: usize) -> anyhow::Result<Program> {
        let program = Program::start_on(build, &self.folder(number)?, &self.key, &[]).await?;
        program.until_compiled().await?;
        Ok(program)
    }
}

pub(crate) fn key_of(answer: &Value) -> anyhow::Result<String> {
    let key = answer.get("key").and_then(Value::as_str);
    key.map(str::to_owned).ok_or_else(|| anyhow!("no key in {answer}"))
}

fn write_secret(file: &Path, content: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
    Ok(std::io::Write::write_all(&mut file, content.as_bytes())?)
}
