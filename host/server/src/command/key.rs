//! `key create | list | show | limit | disable | enable | revoke`.

use clap::Subcommand;
use cofferdam_store::{
    Actor, ApiKey, Clock, Dollars, DollarsError, KeyChange, KeyOwner, KeySpend, LimitsChange, Name, NewKey,
    OwnedKey, SpendLimits, SpendWindow, Store,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::money::number;
use super::table::{or_dash, table};
use super::{CommandError, CommandOutcome, ListArguments, Remote, name};
use crate::timestamp::timestamp;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What can be done to API keys.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyCommand {
    /// Create a key; it is shown once and never again
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Create(CreateKey),
    /// List keys, oldest first, revoked ones too
    #[command(add = Remote::Reads)]
    List(ListArguments),
    /// Show one key
    #[command(add = Remote::Reads)]
    Show {
        /// Its id, as `key list` shows it
        id: String,
    },
    /// Switch a key off until it is switched on again
    #[command(add = Remote::Changes)]
    Disable {
        /// Its id, as `key list` shows it
        id: String,
    },
    /// Switch a key on again
    #[command(add = Remote::Changes)]
    Enable {
        /// Its id, as `key list` shows it
        id: String,
    },
    /// Change what a key may spend; limits that are not named stay
    #[command(add = Remote::Changes, arg_required_else_help = true)]
    Limit(LimitCommand),
    /// Revoke a key; it never works again
    #[command(add = Remote::Changes)]
    Revoke {
        /// Its id, as `key list` shows it
        id: String,
    },
}

/// Which key to create.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct CreateKey {
    /// The workspace it acts in, by name or id
    #[arg(long, required_unless_present = "no_scope")]
    pub workspace: Option<String>,
    /// The member it belongs to, by name or id [default: the workspace's owner]
    #[arg(long, conflicts_with_all = ["intern", "provisioning"])]
    pub member: Option<String>,
    /// The intern it is confined to, by name or id
    #[arg(long, conflicts_with = "provisioning")]
    pub intern: Option<String>,
    /// A key that manages keys of the workspace and does no inference
    #[arg(long)]
    pub provisioning: bool,
    /// A key without a workspace: it can read the catalog
    #[arg(long, conflicts_with_all = ["workspace", "member", "intern", "provisioning"])]
    pub no_scope: bool,
    /// A label to recognise it by
    #[arg(long)]
    pub name: Option<String>,
    /// After how many days it stops working [default: never]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub expires_days: Option<u32>,
    /// What it may spend on a day of UTC
    #[arg(long, value_name = "DOLLARS")]
    pub limit_day: Option<Dollars>,
    /// What it may spend in a week, which begins on Monday
    #[arg(long, value_name = "DOLLARS")]
    pub limit_week: Option<Dollars>,
    /// What it may spend in a month
    #[arg(long, value_name = "DOLLARS")]
    pub limit_month: Option<Dollars>,
    /// What it may spend in all
    #[arg(long, value_name = "DOLLARS")]
    pub limit_total: Option<Dollars>,
}

/// Which limits of a key to change.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct LimitCommand {
    /// Its id, as `key list` shows it
    pub id: String,
    /// What it may spend on a day of UTC; `none` takes the limit away
    #[arg(
        long,
        value_name = "DOLLARS|none",
        required_unless_present_any = ["limit_week", "limit_month", "limit_total"]
    )]
    pub limit_day: Option<LimitChange>,
    /// What it may spend in a week, which begins on Monday
    #[arg(long, value_name = "DOLLARS|none")]
    pub limit_week: Option<LimitChange>,
    /// What it may spend in a month
    #[arg(long, value_name = "DOLLARS|none")]
    pub limit_month: Option<LimitChange>,
    /// What it may spend in all
    #[arg(long, value_name = "DOLLARS|none")]
    pub limit_total: Option<LimitChange>,
}

/// A limit to set, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitChange {
    /// No limit.
    None,
    /// So much, pico-dollars.
    Pico(u64),
}

impl std::str::FromStr for LimitChange {
    type Err = DollarsError;

    fn from_str(text: &str) -> Result<Self, DollarsError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(|it: Dollars| Self::Pico(it.pico())) }
    }
}

impl LimitCommand {
    /// The limits after the change.
    fn change(&self, before: SpendLimits) -> SpendLimits {
        let changed = |limit: Option<LimitChange>, before| match limit {
            None => before,
            Some(LimitChange::None) => None,
            Some(LimitChange::Pico(pico)) => Some(pico),
        };
        SpendLimits {
            day_pico: changed(self.limit_day, before.day_pico),
            week_pico: changed(self.limit_week, before.week_pico),
            month_pico: changed(self.limit_month, before.month_pico),
            total_pico: changed(self.limit_total, before.total_pico),
        }
    }
}

impl CreateKey {
    fn limits(&self) -> SpendLimits {
        SpendLimits {
            day_pico: self.limit_day.map(Dollars::pico),
            week_pico: self.limit_week.map(Dollars::pico),
            month_pico: self.limit_month.map(Dollars::pico),
            total_pico: self.limit_total.map(Dollars::pico),
        }
    }
}

pub(super) async fn carry_out(command: &KeyCommand, store: &Store) -> Result<CommandOutcome, CommandError> {
    match command {
        KeyCommand::Create(wanted) => create(wanted, store).await,
        KeyCommand::List(wanted) => list(wanted, store).await,
        KeyCommand::Show { id } => show(id, store).await,
        KeyCommand::Disable { id } => switch(id, true, store).await,
        KeyCommand::Enable { id } => switch(id, false, store).await,
        KeyCommand::Limit(wanted) => limit(wanted, store).await,
        KeyCommand::Revoke { id } => {
            let id = store.find_key(id).await?.key().id;
            let key = store.revoke_key(Actor::Operator, id)?;
            let mut document = described(&key);
            document.insert("revoked_at".to_owned(), key.revoked_at_ms.map(timestamp).into());
            Ok(CommandOutcome { document: document.into(), text: format!("Revoked key {id}.\n") })
        }
    }
}

async fn switch(id: &str, disabled: bool, store: &Store) -> Result<CommandOutcome, CommandError> {
    let id = store.find_key(id).await?.key().id;
    let change = KeyChange { disabled: Some(disabled), ..KeyChange::default() };
    let key = store.set_key(Actor::Operator, id, change)?;
    let text = format!("Key {id} is switched {} now.\n", if disabled { "off" } else { "on" });
    Ok(changed(&key, text, store).await)
}

async fn limit(wanted: &LimitCommand, store: &Store) -> Result<CommandOutcome, CommandError> {
    let found = store.find_key(&wanted.id).await?;
    let before = found.key();
    let limits = LimitsChange { from: Some(before.limits), to: wanted.change(before.limits) };
    let change = KeyChange { limits: Some(limits), ..KeyChange::default() };
    let key = store.set_key(Actor::Operator, before.id, change)?;
    let text = format!("Limits of key {}: {}.\n", key.id, limits_text(&key.limits));
    Ok(changed(&key, text, store).await)
}

/// What a change of a key answers. The change is made, whether or not the spend can be read.
async fn changed(key: &ApiKey, text: String, store: &Store) -> CommandOutcome {
    let spend = store.spend_of(key).await.unwrap_or_default();
    CommandOutcome { document: listed(key, &spend), text }
}

async fn create(wanted: &CreateKey, store: &Store) -> Result<CommandOutcome, CommandError> {
    let label = wanted.name.as_deref().map(name).transpose()?;
    let now_ms = Clock::system().now_ms();
    let expires_at_ms = wanted.expires_days.map(|days| now_ms.saturating_add(u64::from(days) * DAY_MS));
    let owner = owner(wanted, store).await?;
    let new = NewKey { owner, name: label, expires_at_ms, limits: wanted.limits() };
    let issued = store.issue_key(Actor::Operator, new)?;
    let token = String::from_utf8_lossy(issued.token.expose()).into_owned();
    let mut document = described(&issued.key);
    document.insert("key".to_owned(), token.clone().into());
    // The token comes second, as documented.
    let order = ["id", "key", "kind", "workspace_id", "member_id", "intern_id", "created_at", "expires_at"];
    let mut ordered: serde_json::Map<String, Value> =
        order.iter().filter_map(|field| document.remove_entry(*field)).collect();
    if !issued.key.limits.is_empty() {
        ordered.insert("limits".to_owned(), limits_document(&issued.key.limits));
    }
    let text =
        format!("Created {} key {}. It is shown this once:\n\n  {token}\n\n", issued.key.kind, issued.key.id);
    Ok(CommandOutcome { document: ordered.into(), text })
}

async fn owner(wanted: &CreateKey, store: &Store) -> Result<KeyOwner, CommandError> {
    let Some(workspace) = &wanted.workspace else { return Ok(KeyOwner::Unscoped) };
    let workspace = store.find_workspace(workspace).await?.id;
    Ok(match (&wanted.member, &wanted.intern) {
        _ if wanted.provisioning => KeyOwner::Provisioning { workspace },
        (_, Some(intern)) => {
            let intern = store.find_intern(Some(workspace), intern).await?.id;
            KeyOwner::Intern { workspace, intern }
        }
        (Some(member), None) => {
            let member = store.find_member(Some(workspace), member).await?.id;
            KeyOwner::Member { workspace, member: Some(member) }
        }
        (None, None) => KeyOwner::Member { workspace, member: None },
    })
}

async fn list(wanted: &ListArguments, store: &Store) -> Result<CommandOutcome, CommandError> {
    let keys = wanted.records(store, async |of, before| store.keys(of, before).await).await?;
    let spends = store.key_spends(keys.iter().map(|owned| owned.key().clone()).collect()).await?;
    let documents = keys.iter().zip(&spends).map(|(owned, spend)| listed(owned.key(), spend)).collect();
    Ok(CommandOutcome { document: Value::Array(documents), text: keys_table(&keys) })
}

async fn show(id: &str, store: &Store) -> Result<CommandOutcome, CommandError> {
    let owned = store.find_key(id).await?;
    let document = listed(owned.key(), &store.spend_of(owned.key()).await?);
    Ok(CommandOutcome { document, text: keys_table(&[owned]) })
}

fn keys_table(keys: &[OwnedKey]) -> String {
    let now_ms = Clock::system().now_ms();
    let row = |owned: &OwnedKey| {
        let key = owned.key();
        [
            key.id.to_string(),
            key.kind.to_string(),
            or_dash(key.name.as_ref()),
            or_dash(owned.workspace.as_ref().map(|workspace| &workspace.name)),
            or_dash(belongs_to(owned)),
            timestamp(key.created_at_ms),
            state(key, now_ms),
            limits_text(&key.limits),
        ]
    };
    let header = ["ID", "KIND", "NAME", "WORKSPACE", "BELONGS TO", "CREATED", "STATE", "LIMITS"];
    table(header, &keys.iter().map(row).collect::<Vec<_>>())
}

fn listed(key: &ApiKey, spend: &KeySpend) -> Value {
    let mut document = described(key);
    document.insert("name".to_owned(), key.name.as_ref().map(ToString::to_string).into());
    document.insert("revoked_at".to_owned(), key.revoked_at_ms.map(timestamp).into());
    document.insert("disabled".to_owned(), key.disabled.into());
    document.insert("limits".to_owned(), limits_document(&key.limits));
    document.insert("spent".to_owned(), spent(spend));
    document.into()
}

fn belongs_to(key: &OwnedKey) -> Option<&Name> {
    let intern = key.intern.as_ref().map(|intern| &intern.name);
    intern.or_else(|| key.member.as_ref().map(|member| &member.name))
}

fn state(key: &ApiKey, now_ms: u64) -> String {
    match (key.revoked_at_ms, key.expires_at_ms) {
        (Some(_), _) => "revoked".to_owned(),
        _ if key.disabled => "disabled".to_owned(),
        (None, Some(expires_at_ms)) if expires_at_ms <= now_ms => "expired".to_owned(),
        (None, Some(expires_at_ms)) => format!("until {}", timestamp(expires_at_ms)),
        (None, None) => "active".to_owned(),
    }
}

/// One member for each limit that is set, in dollars.
fn limits_document(limits: &SpendLimits) -> Value {
    let set = |window: SpendWindow| Some((window.as_str().to_owned(), number(limits.of(window)?)));
    SpendWindow::ALL.into_iter().filter_map(set).collect::<serde_json::Map<_, _>>().into()
}

fn limits_text(limits: &SpendLimits) -> String {
    let set = |window: SpendWindow| Some(format!("${}/{window}", Dollars::from_pico(limits.of(window)?)));
    let set: Vec<String> = SpendWindow::ALL.into_iter().filter_map(set).collect();
    or_dash(Some(set.join(" ")).filter(|text| !text.is_empty()))
}

/// What a key has spent in the current windows, in dollars.
fn spent(spend: &KeySpend) -> Value {
    let of = |window: SpendWindow| (window.as_str().to_owned(), number(spend.charged.of(window)));
    SpendWindow::ALL.into_iter().map(of).collect::<serde_json::Map<_, _>>().into()
}

fn described(key: &ApiKey) -> serde_json::Map<String, Value> {
    let described = json!({
        "id": key.id.to_string(),
        "kind": key.kind.as_str(),
        "workspace_id": key.workspace.map(|id| id.to_string()),
        "member_id": key.member.map(|id| id.to_string()),
        "intern_id": key.intern.map(|id| id.to_string()),
        "created_at": timestamp(key.created_at_ms),
        "expires_at": key.expires_at_ms.map(timestamp),
    });
    match described {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    }
}
