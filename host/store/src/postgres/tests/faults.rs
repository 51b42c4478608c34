//! Connections that break at each place of a transaction: what was acknowledged is there once, and
//! everything else is whole or absent.

use std::collections::BTreeMap;

use cofferdam_test_postgres::{Fault, Place, Proxy, Rule};

use super::{Host, OPERATOR, PATIENCE, World, is_undone, rounds};
use crate::audit::AuditAction;
use crate::changes::{RowIntent, SettledUsage, guarded};
use crate::error::Error;
use crate::ids::{VaultId, WorkspaceId};
use crate::scratch::new_secret;
use crate::state::Guard;
use crate::usage::{UsageKind, UsageRow};

/// Changes that are handed over together.
const TOGETHER: usize = 3;

/// Hands over several changes at once and waits for their answers.
fn put_together(host: &Host, workspace: WorkspaceId, names: &[String]) -> Vec<Result<(), Error>> {
    let vault = VaultId::Workspace(workspace);
    let begun: Vec<_> = names
        .iter()
        .map(|name| {
            let new = new_secret(vault, name, &format!("value of {name}"));
            let put = guarded([Guard::Vault(vault)], move |batch| batch.put_secret(OPERATOR, &new).map(drop));
            host.begin(Some(workspace), put)
        })
        .collect();
    begun.into_iter().map(|pending| pending.wait(PATIENCE)).collect()
}

/// Breaks the connection at this place again and again.
fn strike(name: &str, faults: &[(Place, Fault)], rounds: usize) {
    let Some(world) = World::new(name) else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = host.create_workspace("w").unwrap().id;
    let key = "000000000001".parse().unwrap();
    let (mut ended, mut requests) = (BTreeMap::new(), Vec::new());
    for round in 0..rounds {
        for (kind, (place, fault)) in faults.iter().enumerate() {
            let struck = proxy.struck();
            // No caller waits for usage rows: they are there once, whatever becomes of their group.
            let request = format!("r_{round}_{kind}");
            let row = UsageRow::begun(request.clone(), workspace, key, UsageKind::Responses, false);
            let queue = host.queues.of(Some(workspace));
            queue.push_usage(SettledUsage { row, intent: RowIntent::None }).unwrap();
            requests.push(request);
            proxy.add(Rule::new(place.clone(), *fault));
            let names: Vec<String> = (0..TOGETHER).map(|at| format!("n_{round}_{kind}_{at}")).collect();
            let answers = put_together(&host, workspace, &names);
            assert!(proxy.struck() > struck, "{place:?} {fault:?} did not strike");
            ended.extend(names.into_iter().zip(answers));
        }
    }
    host.engine.close();
    check(&world, workspace, &ended);
    let mut found: Vec<String> = world.usage().into_iter().map(|row| row.request_id).collect();
    found.sort_unstable();
    requests.sort_unstable();
    assert_eq!(found, requests);
}

/// Compares what clients were told with what is there.
fn check(world: &World, workspace: WorkspaceId, ended: &BTreeMap<String, Result<(), Error>>) {
    let vault = VaultId::Workspace(workspace);
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for entry in world.audit().into_iter().flat_map(|record| record.entries) {
        if let AuditAction::SecretStored { name, .. } = entry.action {
            *recorded.entry(name.as_str().to_owned()).or_default() += 1;
        }
    }
    let mut present = 0;
    for (text, ended) in ended {
        let name = text.parse().unwrap();
        let found = world.read(|view| {
            let Some(stored) = view.secret(vault, &name)? else { return Ok(None) };
            Ok(Some(view.value(vault, &stored)?))
        });
        let value = format!("value of {text}");
        assert!(found.as_ref().is_none_or(|found| ***found == *value.as_bytes()), "{text} is not whole");
        let times = recorded.get(text).copied().unwrap_or(0);
        assert_eq!(times, usize::from(found.is_some()), "{text} is recorded as often as it was made");
        match ended {
            Ok(()) => assert!(found.is_some(), "{text} was acknowledged and is lost"),
            undone if is_undone(undone) => {
                assert!(found.is_none(), "{text} was made, its caller was told it was not")
            }
            Err(error) => panic!("{text}: the lane knows what became of it: {error}"),
        }
        present += u64::from(found.is_some());
    }
    println!("{present} of {} changes made", ended.len());
    assert!(present > 0);
    let head = world.read(|view| view.head(vault)).unwrap();
    assert_eq!((head.row_count, head.version), (present, present));
    assert_eq!(world.verify(), present);
}

const CUTS: [Fault; 3] = [Fault::CutBefore, Fault::CutAfter, Fault::SwallowReply];

#[test]
fn cuts_in_the_first_round_trip_lose_and_double_nothing() {
    let places = [
        Place::Flight(1),
        Place::Sql("FROM chain".to_owned()),
        Place::Sql("INSERT INTO head".to_owned()),
        Place::Sql("ORDER BY k FOR UPDATE".to_owned()),
        Place::Sql("UNION ALL".to_owned()),
    ];
    let faults: Vec<_> = places.iter().flat_map(|place| CUTS.map(|cut| (place.clone(), cut))).collect();
    strike("cuts_first", &faults, rounds(1, 50));
}

#[test]
fn cuts_in_the_second_round_trip_lose_and_double_nothing() {
    let places = ["INSERT INTO secret", "INSERT INTO audit", "UPDATE chain SET seq"]
        .map(|sql| Place::Sql(sql.to_owned()));
    let faults: Vec<_> = places.iter().flat_map(|place| CUTS.map(|cut| (place.clone(), cut))).collect();
    strike("cuts_second", &faults, rounds(2, 50));
}

#[test]
fn cuts_at_commit_lose_and_double_nothing() {
    let cuts =
        [Fault::CutBefore, Fault::CutAfter, Fault::SwallowReply, Fault::CloseToClient, Fault::CloseToServer];
    let faults = cuts.map(|fault| (Place::Commit, fault));
    strike("cuts_commit", &faults, rounds(4, 50));
}

#[test]
fn cuts_of_the_question_what_became_of_a_commit_lose_and_double_nothing() {
    let Some(world) = World::new("cuts_question") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = host.create_workspace("w").unwrap().id;
    let mut ended = BTreeMap::new();
    for round in 0..rounds(2, 50) {
        for (kind, (first, second)) in [
            (Fault::SwallowReply, Fault::SwallowReply),
            (Fault::CutBefore, Fault::CutBefore),
            (Fault::CutBefore, Fault::CutAfter),
        ]
        .into_iter()
        .enumerate()
        {
            let struck = proxy.struck();
            proxy.add(Rule::new(Place::Commit, first));
            proxy.add(Rule::new(Place::Sql("checked + 1".to_owned()), second));
            let names = [format!("n_{round}_{kind}")];
            let answers = put_together(&host, workspace, &names);
            assert_eq!(proxy.struck(), struck + 2);
            ended.extend(names.into_iter().zip(answers));
        }
    }
    check(&world, workspace, &ended);
}

#[test]
fn silence_at_commit_loses_and_doubles_nothing() {
    // Each waits for the end of a round trip that gets no answer.
    let faults = [Fault::SilenceBefore, Fault::SilenceAfter].map(|fault| (Place::Commit, fault));
    strike("silence", &faults, rounds(1, 5));
}

#[test]
fn a_database_that_refuses_connections_costs_no_change_that_was_acknowledged() {
    let Some(world) = World::new("refused") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = host.create_workspace("w").unwrap().id;
    proxy.refuse(true);
    proxy.cut();
    let mut ended = BTreeMap::new();
    let names = ["away".to_owned()];
    ended.extend(names.clone().into_iter().zip(put_together(&host, workspace, &names)));
    assert!(is_undone(&ended["away"]), "{ended:?}");
    proxy.refuse(false);
    let names = ["back".to_owned()];
    ended.extend(names.clone().into_iter().zip(put_together(&host, workspace, &names)));
    assert!(ended["back"].is_ok(), "{ended:?}");
    check(&world, workspace, &ended);
}
