//! Creates a golden store in the format of this version: `cargo run -p cofferdam-store --example
//! golden -- FOLDER`, where the folder does not exist yet. `tests/fixtures` has one such store of
//! every released version, which a test opens.

use std::path::Path;
use std::time::Duration;

use cofferdam_store::{
    Actor, Clock, DirectoryLock, Hosts, KeyOwner, LegacySecret, Name, NewIntern, NewKey, NewSecret,
    OpenOptions, RootKeySource, SecretValue, SpendLimits, Store, VaultId,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let root_key = RootKeySource::File(folder.join("root.key"));
    // A clock that stands still, so that the dates in the store are known.
    let clock = Clock::manual();
    let options = OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock };
    let store = Store::open(DirectoryLock::acquire(folder)?, options)?;
    fill(&store).await?;
    store.close();
    drop(store);
    cut_journals(&folder.join("store"))
}

async fn fill(store: &Store) -> Outcome<()> {
    let workspace = store.find_workspace("default").await?.id;
    let new = NewIntern { workspace, name: Name::parse("golden")?, created_by: None };
    let intern = store.create_intern(Actor::Operator, new)?.id;
    let owner = KeyOwner::Intern { workspace, intern };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
    let token = store.issue_key(Actor::Operator, new)?.token;
    let token = std::str::from_utf8(token.expose())?.to_owned();
    for (vault, name, value) in [
        (VaultId::Workspace(workspace), "golden", "a value of the workspace"),
        // The token is stored as a secret, because the test needs it and cannot get it anywhere
        // else.
        (VaultId::Workspace(workspace), "token", &token),
        (VaultId::Intern(intern), "own", "a value of the intern"),
        (VaultId::Operator, "provider", "a value of the operator"),
        (VaultId::Workspace(workspace), "deleted", "nothing"),
    ] {
        let hosts = Hosts::parse(&["api.example.com", "b.example"])?;
        let value = SecretValue::new(value.to_owned().into())?;
        let new = NewSecret { vault, name: name.parse()?, hosts, value };
        store.put_secret(store.queue_permit_within(PATIENCE)?, Actor::Operator, new).wait(PATIENCE)?;
    }
    let permit = store.copy_permit(workspace).await?;
    store.copy_secrets(permit, Actor::Operator, intern, vec!["golden".parse()?]).wait(PATIENCE)?;
    let (permit, deleted) = (store.queue_permit_within(PATIENCE)?, "deleted".parse()?);
    store.delete_secret(permit, Actor::Operator, VaultId::Workspace(workspace), deleted).wait(PATIENCE)?;
    let value = SecretValue::new("a value of old".to_owned().into())?;
    let legacy = LegacySecret { name: "legacy".parse()?, value, created_at_ms: Some(1_600_000_000_000) };
    store.import_legacy(Actor::Operator, workspace, vec![legacy])?;
    Ok(())
}

/// Removes the zeros at the end of journals, which the engine creates 64 MiB long.
fn cut_journals(store: &Path) -> Outcome<()> {
    for entry in std::fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let content = std::fs::read(&path)?;
            let end = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            std::fs::OpenOptions::new().write(true).open(&path)?.set_len(end as u64)?;
        }
    }
    Ok(())
}
