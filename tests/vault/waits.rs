//! A disk that hangs or fails: every request gets an answer in time.

use super::{Vault, assert_refused, setup};
use crate::kit::admin::Admin;
use crate::kit::database::is_embedded;
use crate::kit::shim::{Action, Call, EIO, Rule, Shim};
use std::sync::Arc;

const TIMED_OUT: &str = "Vault request timed out";

fn on_journal(action: Action) -> [Rule; 1] {
    [Rule::new(Call::Sync, "jnl", action)]
}

#[tokio::test]
async fn writes_to_a_hanging_disk_time_out_and_reads_go_on() {
    if !is_embedded("it breaks the disk of a data directory") {
        return;
    }
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let host = shim.on(setup).start();
    let (vault, admin) = (Vault::of(&host), Admin::new(&host));
    let kept = vault.stored("a", &["a.com"], "x").await;
    admin.until_ready().await;
    shim.rules(&on_journal(Action::Freeze));
    assert_refused(&vault.put("b", &["a.com"], "x").await, (504, TIMED_OUT), "put");
    // The writer has not begun it, so it is withdrawn.
    assert_refused(&vault.delete("a").await, (408, TIMED_OUT), "delete");
    assert_eq!(vault.list().await, std::slice::from_ref(&kept));
    while admin.get("/readyz").await.status == 200 {}
    assert_refused(&vault.put("c", &["a.com"], "x").await, (504, TIMED_OUT), "stalled");
    assert_eq!(vault.list().await, [kept]);
    // The write with an unknown outcome was made.
    shim.rules(&[]);
    admin.until_ready().await;
    while vault.names().await != ["a", "b"] {}
    vault.stored("c", &["a.com"], "x").await;
}

#[tokio::test]
async fn a_write_that_leaves_the_queue_too_late_is_a_408_and_is_not_made() {
    if !is_embedded("it breaks the disk of a data directory") {
        return;
    }
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let host = shim.on(setup).start();
    let vault = Arc::new(Vault::of(&host));
    vault.stored("first", &["a.com"], "x").await;
    shim.rules(&on_journal(Action::Freeze));
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..800 {
        let vault = Arc::clone(&vault);
        writers.spawn(async move {
            let name = format!("n{number}");
            let answer = vault.put(&name, &["a.com"], "x").await;
            (name, answer)
        });
    }
    let answers = writers.join_all().await;
    let mut late = Vec::new();
    for (name, answer) in &answers {
        assert!(matches!(answer.status, 408 | 504), "{}", answer.text);
        assert_refused(answer, (answer.status, TIMED_OUT), name);
        if answer.status == 408 {
            late.push(name);
        }
    }
    assert!(!late.is_empty() && late.len() < answers.len(), "{} of {}", late.len(), answers.len());
    shim.rules(&[]);
    Admin::new(&host).until_ready().await;
    vault.stored("last", &["a.com"], "x").await;
    let mut names = Vec::new();
    while let page = vault.page(&format!("?offset={}", names.len())).await
        && let entries @ [_, ..] = &page.body["data"].as_array().unwrap()[..]
    {
        names.extend(entries.iter().map(|entry| super::text(entry, "name")));
    }
    assert!(late.iter().all(|name| !names.contains(name)), "what was given up was done all the same");
    assert!(names.len() > 2, "what had a place was not done");
}

#[tokio::test]
async fn a_failed_write_is_a_502_and_ends_the_host() {
    if !is_embedded("it breaks the disk of a data directory") {
        return;
    }
    let setup = setup();
    let shim = Shim::new(&setup.data());
    let mut host = shim.on(setup).start();
    let vault = Vault::of(&host);
    vault.stored("a", &["a.com"], "x").await;
    Admin::new(&host).until_ready().await;
    shim.rules(&on_journal(Action::Fail(EIO)));
    assert_refused(&vault.put("b", &["a.com"], "x").await, (502, "Vault request failed"), "put");
    assert_eq!(host.wait().code(), Some(1), "{}", host.log());
    shim.rules(&[]);
    let host = host.restart();
    assert!(Vault::of(&host).names().await.contains(&"a".to_owned()));
}
