//! The audit log, filtered by action, key and day.

use super::{CANARY, Place, in_both_ways, text};
use crate::kit::client::Client;
use crate::kit::database::is_embedded;
use crate::kit::host::Setup;
use serde_json::{Value, json};

fn records(place: &Place, filter: &str) -> Vec<Value> {
    let Value::Array(records) = place.done(&format!("vault audit {filter}")) else { panic!("{filter}") };
    records
}

/// The actions of all entries, in their order.
fn actions(records: &[Value]) -> Vec<&str> {
    let entries = records.iter().flat_map(|record| record["entries"].as_array().unwrap());
    entries.map(|entry| text(entry, "action")).collect()
}

#[test]
fn the_log_is_filtered_by_action_key_and_day_alone_and_together() {
    if !is_embedded("the numbers of the records of a database are of several chains") {
        return;
    }
    in_both_ways(|place| {
        place.put("a", CANARY, "");
        let key = place.done("key create --workspace default");
        let other = place.done("key create --workspace default");
        let (id, other) = (text(&key, "id"), text(&other, "id"));
        place.done(&format!("key disable {id}"));
        place.done(&format!("key revoke {other}"));
        place.put("b", CANARY, "");
        let all = records(place, "");
        assert_eq!(actions(&records(place, "--action secret_stored")), ["secret_stored"; 2]);
        assert_eq!(actions(&records(place, &format!("--key {id}"))), ["key_issued", "key_changed"]);
        let both = format!("--key {other} --action key_revoked");
        assert_eq!(actions(&records(place, &both)), ["key_revoked"]);
        let stored = records(place, "--action secret_stored");
        let after = format!("--action secret_stored --since {}", stored[0]["seq"]);
        assert_eq!(records(place, &after), stored[1..]);
        assert_eq!(records(place, "--action member_deleted"), [Value::Null; 0]);

        let times: Vec<&str> = all.iter().map(|record| text(record, "at")).collect();
        let shapes = times
            .iter()
            .map(|time| time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>());
        assert!(shapes.into_iter().all(|shape| shape == "0000-00-00T00:00:00.000Z"), "{times:?}");
        // The test may run across midnight UTC, so the days together must equal the whole log.
        let mut days: Vec<&str> = times.iter().map(|time| &time[..10]).collect();
        days.dedup();
        let by_day: Vec<Value> =
            days.iter().flat_map(|day| records(place, &format!("--day {day}"))).collect();
        assert_eq!(by_day, all);
        assert_eq!(records(place, "--day 2001-01-01"), [Value::Null; 0]);
    });
}

#[test]
fn the_newest_records_are_read_from_the_end_with_and_without_filters() {
    if !is_embedded("the numbers of the records of a database are of several chains") {
        return;
    }
    in_both_ways(|place| {
        for name in ["a", "b", "a", "c", "a"] {
            place.put(name, CANARY, "");
        }
        let all = records(place, "");
        for count in [1, 2, all.len(), 1000] {
            let from = all.len().saturating_sub(count);
            assert_eq!(records(place, &format!("--newest {count}")), all[from..], "{count}");
        }
        let (last, count) = (&all[all.len() - 2]["seq"], all.len());
        let before = records(place, &format!("--newest 2 --before {last}"));
        assert_eq!(before, all[count - 4..count - 2]);
        assert_eq!(records(place, "--newest 2 --before 1"), [Value::Null; 0]);

        let of_a = records(place, "--secret a");
        assert_eq!(actions(&of_a), ["secret_stored"; 3]);
        assert_eq!(records(place, "--secret a --newest 2"), of_a[1..]);
        let first = &of_a[2]["seq"];
        assert_eq!(records(place, &format!("--secret a --newest 9 --before {first}")), of_a[..2]);
        assert_eq!(records(place, "--secret d --newest 2"), [Value::Null; 0]);
        for line in ["--newest 0", "--newest 1001", "--before 7", "--newest 2 --since 1"] {
            place.failed(&format!("vault audit {line}"), 2);
        }
    });
}

#[test]
fn an_invalid_filter_is_named() {
    in_both_ways(|place| {
        for (filter, code, says) in [
            ("--action secret_eaten", 1, "secret_stored"),
            ("--key nothing", 1, "nothing"),
            ("--secret a/b", 1, "a/b"),
            ("--day yesterday", 2, "yesterday"),
            ("--day 2026-02-30", 2, "2026-02-30"),
        ] {
            let complaint = place.failed(&format!("vault audit {filter}"), code);
            assert!(complaint.contains(says), "{filter}: {complaint}");
        }
    });
}

#[tokio::test]
async fn what_a_key_did_is_found_by_its_id() {
    let host = Setup::new().start();
    let made = host.command(&["key", "create", "--workspace", "default"]);
    let client = Client::with_key(&host, text(&made, "key"));
    let body = json!({"hosts": ["a.com"], "value": CANARY});
    let request = client.request(reqwest::Method::PUT, "/vault/secrets/a").body(body.to_string());
    assert_eq!(request.header("content-type", "application/json").send().await.unwrap().status(), 200);
    let place = Place::Served(Box::new(host));
    place.put("b", CANARY, "");
    let found = records(&place, &format!("--key {} --action secret_stored", text(&made, "id")));
    assert_eq!(actions(&found), ["secret_stored"]);
    assert_eq!(found[0]["entries"][0]["name"], "a");
}
