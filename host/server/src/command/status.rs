//! `status` and `models`: the current state of the store and of the running host.

use cofferdam_store::{HostFacts, Store, StoreSchema, StoreStatus};
use serde_json::{Value, json};

use super::table::{listing, or_dash, pairs};
use super::{CommandError, CommandOutcome};
use crate::facts::{Facts, HeldFacts, ModelFacts, Serving};

pub(super) async fn status(store: Option<&Store>, facts: &Facts) -> Result<CommandOutcome, CommandError> {
    let mut rows = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    match &facts.serving {
        Some(serving) => rows.extend([
            ("serving", format!("yes, process {}", serving.pid)),
            ("listen", format!("{}://{}", scheme(serving), serving.listen)),
            ("admin", format!("{}://{}", scheme(serving), serving.admin)),
            ("ready", yes_no(serving.ready)),
            ("uptime", format!("{} s", serving.uptime_s)),
            ("requests running", serving.requests_running.to_string()),
            ("reloads", format!("{}, {} refused", serving.reloads, serving.reloads_refused)),
        ]),
        None => rows.push(("serving", "no".to_owned())),
    }
    let updates = facts.held.iter().map(|held| {
        let HeldFacts { plugin, version, .. } = held;
        let text = format!("{plugin} {version}: `cofferdam plugin grant {plugin}` shows what it asks for");
        ("plugin held", text)
    });
    rows.extend(updates);
    let stored = match store {
        Some(store) => Some(stored(store, &mut rows).await?),
        None => None,
    };
    let document = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "serving": facts.serving,
        "store": stored,
        "held_plugins": facts.held,
    });
    Ok(CommandOutcome { document, text: pairs(&rows) })
}

async fn stored(store: &Store, rows: &mut Vec<(&'static str, String)>) -> Result<Value, CommandError> {
    let state = store.status();
    let counts = store.counts().await?;
    let hosts = store.database_hosts();
    rows.push(("store", state.store_id.to_string()));
    match hosts {
        Some(hosts) => rows.push(("engine", format!("PostgreSQL at {}", hosts.join(", ")))),
        None => rows.extend([("engine", "embedded".to_owned()), ("sequence", state.seq.to_string())]),
    }
    let schema = store.schema().await.ok().flatten();
    rows.extend(schema.and_then(older_schema).map(|older| ("schema", older)));
    rows.extend([
        ("root key", state.root_key_id.to_string()),
        ("recovery key", recovery(&state).to_owned()),
        ("writable", yes_no(state.writable && state.has_contact)),
    ]);
    if !state.has_contact {
        rows.push((
            "database",
            "no contact: changes and requests are refused; only models are still asked, for `store.stale_ms`"
                .to_owned(),
        ));
    }
    if let Some(next) = state.next_root_key_id {
        rows.push(("rotation", format!("to root key {next} is not over: run `vault rotate-root` again")));
    }
    if state.key_rotation_unfinished {
        rows.push(("key rotation", "is not over: run `vault rotate-keys` again".to_owned()));
    }
    let shared = match hosts {
        Some(_) => Some(sharing(store, rows).await),
        None => None,
    };
    rows.extend(counts.iter().map(|(name, count)| (*name, count.to_string())));
    let counts: serde_json::Map<String, Value> =
        counts.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect();
    Ok(json!({
        "id": state.store_id.to_string(),
        "engine": if hosts.is_some() { "postgres" } else { "embedded" },
        "database_hosts": hosts,
        "schema": schema.map(|schema| schema.number),
        "newest_schema": schema.map(|schema| schema.newest),
        "hosts": shared.as_ref().and_then(|shared| shared.get("hosts")),
        "hosts_differ_in": shared.as_ref().and_then(|shared| shared.get("differ_in")),
        // In a database each chain has numbers of its own.
        "seq": hosts.is_none().then_some(state.seq),
        "root_key_id": state.root_key_id.to_string(),
        "has_recovery_key": state.has_recovery_key,
        "opened_with_recovery_key": state.opened_with_recovery_key,
        "next_root_key_id": state.next_root_key_id.map(|id| id.to_string()),
        "key_rotation_unfinished": state.key_rotation_unfinished,
        "writable": state.writable && state.has_contact,
        "has_contact": state.has_contact,
        "journal_cut": state.journal_cut,
        "queued_mutations": state.queued_mutations,
        "queued_usage_rows": state.queued_usage_rows,
        "counts": counts,
    }))
}

/// What there is to say about a schema that is older than this program.
pub(crate) fn older_schema(StoreSchema { number, newest }: StoreSchema) -> Option<String> {
    let what = format!(
        "{number}, and this version has {newest}: once every host has it, run `cofferdam store upgrade`"
    );
    (number < newest).then_some(what)
}

/// The hosts that share a store in a database, and in what they differ.
async fn sharing(store: &Store, rows: &mut Vec<(&'static str, String)>) -> Value {
    let hosts = match store.hosts().await {
        Ok(hosts) => hosts,
        Err(error) => {
            rows.push(("hosts", format!("cannot be read now: {error}")));
            return Value::Null;
        }
    };
    let hosts: Vec<HostFacts> = hosts.into_iter().filter(|host| host.serves).collect();
    for host in &hosts {
        let beat = host.beat_age_ms.map_or_else(String::new, |age_ms| {
            format!(", sign of life {}.{} s ago", age_ms / 1000, age_ms % 1000 / 100)
        });
        let keys: Vec<String> = host.root_keys.iter().map(ToString::to_string).collect();
        let keys = match keys.as_slice() {
            [] => "no proof of a root key".to_owned(),
            [key] => format!("root key {key}"),
            keys => format!("root keys {}", keys.join(", ")),
        };
        rows.push(("host", format!("{}{beat}, {keys}", host.place())));
    }
    let mut differ_in = Vec::new();
    if are_different(hosts.iter().map(|host| Some(&host.version))) {
        differ_in.push("version");
    }
    if are_different(hosts.iter().map(|host| host.configuration.as_ref())) {
        differ_in.push("configuration");
    }
    if !differ_in.is_empty() {
        rows.push(("hosts differ", format!("in their {}", differ_in.join(" and "))));
    }
    json!({"hosts": hosts.iter().map(described).collect::<Vec<_>>(), "differ_in": differ_in})
}

fn described(host: &HostFacts) -> Value {
    json!({
        "id": host.id,
        "version": host.version,
        "machine": host.machine,
        "process": host.process,
        "beat_age_ms": host.beat_age_ms,
        "root_key_ids": host.root_keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "configuration": host.configuration,
        "is_proven": host.is_proven,
    })
}

/// Whether two of these that are known are not the same.
fn are_different<'h>(mut all: impl Iterator<Item = Option<&'h String>>) -> bool {
    let first = all.by_ref().flatten().next();
    all.flatten().any(|other| Some(other) != first)
}

fn recovery(state: &StoreStatus) -> &'static str {
    match (state.opened_with_recovery_key, state.has_recovery_key) {
        (true, _) => "yes, it opened the store: give it a root key with `vault rotate-root`",
        (false, true) => "yes",
        (false, false) => "no, `vault recovery new` makes one",
    }
}

fn scheme(serving: &Serving) -> &'static str {
    if serving.tls { "https" } else { "http" }
}

fn yes_no(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

pub(super) fn models(facts: &Facts) -> CommandOutcome {
    let row = |model: &ModelFacts| {
        [model.id.clone(), model.kind.to_owned(), or_dash(model.context_length), model.providers.join(", ")]
    };
    listing(["ID", "KIND", "CONTEXT", "PROVIDERS"], &facts.models, row, |model| json!(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_older_than_the_program_is_told_with_both_numbers() {
        assert_eq!(older_schema(StoreSchema { number: 3, newest: 3 }), None);
        assert_eq!(older_schema(StoreSchema { number: 4, newest: 3 }), None);
        let older = older_schema(StoreSchema { number: 2, newest: 3 }).unwrap();
        assert!(older.starts_with("2, and this version has 3") && older.contains("store upgrade"), "{older}");
    }
}
