//! Request export: turns `[[broadcast]]` sections into destinations with their credentials.

use cofferdam_engine::export::{Destination, DestinationKey};
use cofferdam_store::{Secret, SecretName};

use super::{bound, operator_key, problem};
use crate::config::{self, Config, EnvironmentCredentials, Of, Problem};

/// Problems with a destination are added to `problems`.
pub(super) fn destinations(
    config: &Config,
    credentials: &mut EnvironmentCredentials,
    problems: &mut Vec<Problem>,
) -> Vec<Destination> {
    let mut destinations = Vec::new();
    for written in &config.broadcast {
        match destination(written, credentials.remove(&Of::Broadcast(written.name.clone()))) {
            // A destination without an origin was already reported when the configuration was
            // checked.
            Ok(destination) => destinations.extend(destination),
            Err(message) => problems.push(problem(&written.place, message)),
        }
    }
    destinations
}

fn destination(
    written: &config::Broadcast,
    environment: Option<Secret>,
) -> Result<Option<Destination>, String> {
    let (Some(origin), Some(placement)) = (written.origin.clone(), written.placement.clone()) else {
        return Ok(None);
    };
    let bound = |name: &SecretName| {
        bound(name, Some(&origin)).map_err(|error| format!("key: the host of url is {error}"))
    };
    let key = match &written.key {
        Some((source, _)) => operator_key(source, &placement, environment, bound)?,
        None => None,
    };
    Ok(Some(Destination {
        name: written.name.clone(),
        kind: written.kind,
        spans: written.spans,
        origin,
        path: written.path.clone(),
        key: key.map(|key| DestinationKey { placement, key }),
        headers: written.headers.clone(),
    }))
}
