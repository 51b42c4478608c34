//! `secret put | list | delete`.

use std::cmp::Reverse;
use std::time::Duration;

use clap::Subcommand;
use cofferdam_store::{
    Actor, Error, Hosts, HostsError, NewSecret, SecretMetadata, SecretName, SecretValue, Store, VaultId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::sensitive::Sensitive;
use super::table::table;
use super::{CommandError, CommandOutcome, FailureCause, LISTED_MAX, ListLimit, Remote};
use crate::timestamp::timestamp;

/// How long a change may take before its outcome is reported as unknown.
const PATIENCE: Duration = Duration::from_secs(15);
/// Secrets that are read from the store at a time.
const PAGE: usize = 1000;

/// What can be done to secrets.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretCommand {
    /// Store a secret, in place of one of the same name; its value comes from standard input
    #[command(override_usage = "cofferdam secret put <NAME> --host <H>... [OPTIONS]")]
    Put {
        /// Its name: lower-case letters, digits and single underscores
        name: String,
        /// The host names it may be sent to, and no others
        #[arg(long = "host", value_name = "H", required = true, num_args = 1..)]
        hosts: Vec<String>,
        /// Whose it is
        #[command(flatten)]
        scope: SecretScope,
        /// The value, read by the process that was started.
        #[arg(skip)]
        value: Option<Sensitive>,
    },
    /// List secrets, never their values
    #[command(add = Remote::Reads, mut_arg("workspace", |arg| arg.help("A workspace's, by name or id [default: all of this host]")))]
    List {
        /// Whose they are
        #[command(flatten)]
        scope: SecretScope,
        #[command(flatten)]
        #[serde(flatten)]
        limit: ListLimit,
    },
    /// Delete a secret
    #[command(add = Remote::Changes)]
    Delete {
        /// Its name
        name: String,
        /// Whose it is
        #[command(flatten)]
        scope: SecretScope,
    },
}

/// Whose secrets are meant.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[group(multiple = false)]
pub struct SecretScope {
    /// A workspace's, by name or id [default: the only workspace]
    #[arg(long, value_name = "W")]
    pub workspace: Option<String>,
    /// An intern's, by name or id
    #[arg(long, value_name = "I")]
    pub intern: Option<String>,
    /// The operator's, for `key = "operator:NAME"` of a provider
    #[arg(long)]
    pub operator: bool,
}

impl SecretScope {
    fn is_open(&self) -> bool {
        self.workspace.is_none() && self.intern.is_none() && !self.operator
    }

    async fn vault(&self, store: &Store) -> Result<VaultId, CommandError> {
        match (&self.workspace, &self.intern) {
            (Some(workspace), _) => Ok(VaultId::Workspace(store.find_workspace(workspace).await?.id)),
            (_, Some(intern)) => Ok(VaultId::Intern(store.find_intern(None, intern).await?.id)),
            (None, None) if self.operator => Ok(VaultId::Operator),
            (None, None) => match store.workspaces(None).await?.entries.as_slice() {
                [only] => Ok(VaultId::Workspace(only.id)),
                [] => Err(CommandError::new(
                    "there is no workspace: create one with `cofferdam workspace create NAME`, or say whose with \
                     --operator",
                )),
                _ => Err(CommandError::new(
                    "there is more than one workspace: say whose with --workspace, --intern or --operator",
                )),
            },
        }
    }
}

pub(super) async fn carry_out(
    command: &SecretCommand,
    store: &Store,
) -> Result<CommandOutcome, CommandError> {
    match command {
        SecretCommand::Put { name: given, hosts, scope, value } => {
            let vault = scope.vault(store).await?;
            let name = name(given)?;
            let hosts = Hosts::parse(hosts).map_err(|error| no_hosts(error, hosts))?;
            let value = value.as_ref().ok_or_else(|| CommandError::new("no value was given"))?;
            let value = SecretValue::new(value.expose().to_owned().into())
                .map_err(|error| CommandError::new(error.to_string()))?;
            let new = NewSecret { vault, name, hosts, value };
            let stored = store
                .put_secret(store.queue_permit_within(PATIENCE)?, Actor::Operator, new)
                .wait(PATIENCE)?;
            let text = format!("Stored secret {} of {}.\n", stored.name, vault_name(vault, store).await?);
            Ok(CommandOutcome { document: document(vault, &stored), text })
        }
        SecretCommand::List { scope, limit } => list(scope, *limit, store).await,
        SecretCommand::Delete { name: given, scope } => {
            let vault = scope.vault(store).await?;
            let name = name(given)?;
            let permit = store.queue_permit_within(PATIENCE)?;
            let of = vault_name(vault, store).await?;
            match store.delete_secret(permit, Actor::Operator, vault, name.clone()).wait(PATIENCE) {
                Err(Error::NoSuchSecret) => return Err(not_deletable(&name, &of)),
                done => done?,
            };
            let text = format!("Deleted secret {name} of {of}.\n");
            Ok(CommandOutcome { document: json!({"name": name.as_str(), "deleted": true}), text })
        }
    }
}

fn name(given: &str) -> Result<SecretName, CommandError> {
    given.parse().map_err(|error: cofferdam_store::SecretNameError| {
        CommandError::new(format!("`{given}` is not a secret's name: {error}"))
    })
}

/// The error repeats what was typed: unlike the body of an API request, it is not secret.
fn no_hosts(error: HostsError, typed: &[String]) -> CommandError {
    let entry = match error {
        HostsError::Host { index } => typed.get(index),
        HostsError::Count => None,
    };
    CommandError::new(match entry {
        Some(entry) => format!(
            "`{entry}` is not an exact host name such as api.example.com, without scheme, port, path and wildcard"
        ),
        None => error.to_string(),
    })
}

fn not_deletable(name: &SecretName, of: &str) -> CommandError {
    let message = format!(
        "no such secret: {of} has no `{name}` with hosts; one without hosts (legacy) is deleted by storing it again \
         with `--host` and then deleting it"
    );
    CommandError { cause: FailureCause::NotFound, ..CommandError::new(message) }
}

struct Listed {
    /// The place of its vault among those that are listed.
    place: usize,
    secret: SecretMetadata,
}

/// The secrets of one vault after another, by name. With a limit only the newest of all are kept.
async fn list(scope: &SecretScope, limit: ListLimit, store: &Store) -> Result<CommandOutcome, CommandError> {
    let vaults = if scope.is_open() { store.used_vaults().await? } else { vec![scope.vault(store).await?] };
    let mut found = Vec::new();
    for (place, vault) in vaults.iter().enumerate() {
        let mut offset = 0;
        loop {
            let page = match store.list_secrets(*vault, offset, PAGE).await {
                // All secrets are listed, and this intern was deleted meanwhile.
                Err(Error::Lookup(_)) if scope.is_open() => break,
                page => page?,
            };
            offset += page.entries.len();
            found.extend(page.entries.into_iter().map(|secret| Listed { place, secret }));
            bound(&mut found, limit)?;
            if !page.has_more {
                break;
            }
        }
    }
    if let Some(most) = limit.limit {
        keep_newest(&mut found, most as usize);
    }
    let (mut documents, mut rows) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
    for of_vault in found.chunk_by(|one, next| one.place == next.place) {
        let Some(vault) = of_vault.first().and_then(|listed| vaults.get(listed.place)) else { continue };
        let of = vault_name(*vault, store).await?;
        documents.extend(of_vault.iter().map(|listed| document(*vault, &listed.secret)));
        rows.extend(of_vault.iter().map(|listed| row(&of, &listed.secret)));
    }
    let text = table(["NAME", "OF", "HOSTS", "FINGERPRINT", "CREATED"], &rows);
    Ok(CommandOutcome { document: documents.into(), text })
}

/// Refuses a listing of too many secrets. With a limit, drops older ones when many have come.
fn bound(found: &mut Vec<Listed>, limit: ListLimit) -> Result<(), CommandError> {
    match limit.limit {
        None if found.len() > LISTED_MAX as usize => Err(CommandError::new(format!(
            "there are more than {LISTED_MAX}; `--limit N` lists the newest N of them"
        ))),
        Some(most) if found.len() > 2 * most as usize + PAGE => {
            keep_newest(found, most as usize);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Drops all but the newest secrets, and leaves those in the order of the listing.
fn keep_newest(found: &mut Vec<Listed>, most: usize) {
    if found.len() <= most {
        return;
    }
    found.sort_by_key(|listed| Reverse(listed.secret.created_at_ms));
    found.truncate(most);
    found.sort_by(|one, other| (one.place, &one.secret.name).cmp(&(other.place, &other.secret.name)));
}

fn row(of: &str, secret: &SecretMetadata) -> [String; 5] {
    let hosts = match &secret.hosts {
        Some(hosts) => hosts.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        None => "- (legacy, released nowhere)".to_owned(),
    };
    // The first characters are enough to distinguish two values.
    let fingerprint =
        secret.fingerprint.map(|fingerprint| fingerprint.to_string().chars().take(15).collect());
    [
        secret.name.to_string(),
        of.to_owned(),
        hosts,
        fingerprint.unwrap_or_else(|| "-".to_owned()),
        timestamp(secret.created_at_ms),
    ]
}

/// The owner of a vault, for people.
async fn vault_name(vault: VaultId, store: &Store) -> Result<String, CommandError> {
    let (kind, name, id) = match vault {
        VaultId::Workspace(id) => {
            ("workspace", store.workspace(id).await?.map(|it| it.name.clone()), id.to_string())
        }
        VaultId::Intern(id) => ("intern", store.intern(id).await?.map(|it| it.name.clone()), id.to_string()),
        VaultId::Operator => return Ok("the operator".to_owned()),
    };
    Ok(format!("{kind} {}", name.map_or(id, |name| name.to_string())))
}

fn document(vault: VaultId, secret: &SecretMetadata) -> Value {
    let (scope, workspace, intern) = match vault {
        VaultId::Workspace(id) => ("workspace", Some(id.to_string()), None),
        VaultId::Intern(id) => ("intern", None, Some(id.to_string())),
        VaultId::Operator => ("operator", None, None),
    };
    let hosts = secret.hosts.as_ref();
    json!({
        "name": secret.name.as_str(),
        "hosts": hosts.map(|hosts| hosts.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>()),
        "fingerprint": secret.fingerprint.map(|fingerprint| fingerprint.to_string()),
        "created_at": timestamp(secret.created_at_ms),
        "scope": scope,
        "workspace_id": workspace,
        "intern_id": intern,
    })
}

#[cfg(test)]
mod tests {
    use super::{LISTED_MAX, ListLimit, Listed, PAGE, SecretMetadata, bound, keep_newest};

    /// Secrets of some vaults, of the ages that they are given.
    fn listed(count: usize, created_at_ms: impl Fn(usize) -> u64) -> Vec<Listed> {
        let secret = |number: usize| SecretMetadata {
            name: format!("s{number:06}").parse().unwrap(),
            hosts: None,
            fingerprint: None,
            created_at_ms: created_at_ms(number),
        };
        (0..count).map(|number| Listed { place: number / 7, secret: secret(number) }).collect()
    }

    #[test]
    fn listing_without_a_limit_is_refused_when_it_is_too_long() {
        let mut found = listed(LISTED_MAX as usize, |_| 1);
        bound(&mut found, ListLimit::default()).unwrap();
        found.extend(listed(1, |_| 1));
        let refused = bound(&mut found, ListLimit::default()).unwrap_err();
        assert!(refused.message.contains("more than 50000; `--limit N`"), "{refused}");
    }

    #[test]
    fn listing_with_a_limit_keeps_the_newest_in_its_order() {
        let count = 3 * PAGE;
        let age = |number: usize| (number as u64).wrapping_mul(2_654_435_761) % 1_000_003;
        let mut newest: Vec<usize> = (0..count).collect();
        newest.sort_by_key(|number| std::cmp::Reverse(age(*number)));
        newest.truncate(10);
        newest.sort_unstable();
        let mut found = listed(count, age);
        bound(&mut found, ListLimit { limit: Some(10) }).unwrap();
        let names: Vec<String> = found.iter().map(|listed| listed.secret.name.to_string()).collect();
        assert_eq!(names, newest.iter().map(|number| format!("s{number:06}")).collect::<Vec<_>>());
        keep_newest(&mut found, 10);
        assert_eq!(found.len(), 10);
    }
}
