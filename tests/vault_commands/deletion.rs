//! Deleting members and workspaces; disabling and limiting keys.

use super::{CANARY, Place, done, in_both_ways, names, text};
use serde_json::{Value, json};

fn find<'v>(list: &'v Value, id: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["id"] == id)
        .unwrap_or_else(|| panic!("no {id}: {list}"))
}

/// The entries of this action in the whole audit log.
fn audited(place: &Place, action: &str) -> Vec<Value> {
    let records = place.done(&format!("vault audit --action {action}"));
    let records = records.as_array().unwrap();
    records.iter().flat_map(|record| record["entries"].as_array().unwrap().clone()).collect()
}

#[test]
fn a_deleted_member_leaves_its_interns_and_its_keys_are_revoked() {
    in_both_ways(|place| {
        let ada = place.done("member create ada --workspace default");
        place.done("intern create scout --workspace default --member ada");
        let key = place.done("key create --workspace default --member ada");
        let other = place.done("key create --workspace default");
        let deleted = place.done("member delete ada");
        assert_eq!(deleted, json!({"id": ada["id"], "deleted": true, "keys_revoked": 1}));
        assert_eq!(names(&place.done("member list")), ["owner"]);
        assert_eq!(names(&place.done("intern list")), ["scout"]);
        let keys = place.done("key list");
        assert!(find(&keys, text(&key, "id"))["revoked_at"].is_string(), "{keys}");
        assert_eq!(find(&keys, text(&other, "id"))["revoked_at"], Value::Null);
        let entries = audited(place, "member_deleted");
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(
            (&entries[0]["id"], &entries[0]["name"], &entries[0]["keys_revoked"]),
            (&ada["id"], &json!("ada"), &json!(1))
        );
        // A member can be deleted by id, and only once.
        let eve = place.done("member create eve --workspace default");
        place.done(&format!("member delete {}", text(&eve, "id")));
        assert!(place.failed("member delete ada", 1).contains("no member `ada`"));
        let complaint = place.failed("member delete owner", 1);
        assert!(complaint.contains("deleted with its workspace"), "{complaint}");
    });
}

#[test]
fn a_workspace_is_deleted_with_all_that_it_owns_and_its_name_is_free_again() {
    in_both_ways(|place| {
        let acme = place.done("workspace create acme");
        place.done("member create ada --workspace acme");
        place.done("intern create scout --workspace acme");
        place.done("intern create guide --workspace default");
        for of in
            ["--workspace acme", "--intern scout", "--workspace default", "--intern guide", "--operator"]
        {
            place.put("token", CANARY, of);
        }
        let keys = ["--member ada", "--intern scout", "--provisioning"]
            .map(|owner| place.done(&format!("key create --workspace acme {owner}")));
        let kept = place.done("key create --workspace default");
        let deleted = place.done("workspace delete acme --yes");
        let expected = json!({
            "id": acme["id"], "deleted": true, "members": 2, "interns": 1, "secrets": 2, "keys_revoked": 3,
        });
        assert_eq!(deleted, expected);
        assert_eq!(names(&place.done("workspace list")), ["default"]);
        assert_eq!(names(&place.done("member list")), ["owner"]);
        assert_eq!(names(&place.done("intern list")), ["guide"]);
        assert_eq!(place.done("secret list").as_array().unwrap().len(), 3);
        let listed = place.done("key list");
        for key in &keys {
            assert!(find(&listed, text(key, "id"))["revoked_at"].is_string(), "{listed}");
        }
        assert_eq!(find(&listed, text(&kept, "id"))["revoked_at"], Value::Null);
        let entries = audited(place, "workspace_deleted");
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(entries[0]["actor"], "operator");
        assert_eq!((&entries[0]["id"], &entries[0]["secrets_deleted"]), (&acme["id"], &json!(2)));
        let checked = place.done("vault verify");
        assert_eq!((&checked["ok"], &checked["secrets"]), (&json!(true), &json!(3)));
        assert!(place.failed("workspace delete acme --yes", 1).contains("no workspace `acme`"));
        let again = place.done("workspace create acme");
        assert_ne!(again["id"], acme["id"]);
        assert_eq!(place.done("secret list --workspace acme"), json!([]));
    });
}

#[test]
fn deleting_a_workspace_asks_first_without_yes() {
    in_both_ways(|place| {
        place.done("workspace create acme");
        for answer in ["", "n\n", "no\n", "\n", "acme\n"] {
            let output = place.run_with("workspace delete acme", answer.as_bytes());
            assert_eq!(output.status.code(), Some(1), "{answer:?}: {output:?}");
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(told.contains("Delete workspace `acme`") && told.contains("nothing was done"), "{told}");
            assert_eq!(names(&place.done("workspace list")), ["default", "acme"]);
        }
        let output = place.run_with("workspace delete acme", b"y\n");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("[y/N]"));
        assert_eq!(names(&place.done("workspace list")), ["default"]);
        // An absent workspace is refused without a question.
        assert!(place.failed("workspace delete acme --yes", 1).contains("acme"));
    });
}

#[test]
fn keys_are_switched_off_and_on_and_their_limits_changed_one_by_one() {
    in_both_ways(|place| {
        let made = place.done("key create --workspace default --limit-day 2 --limit-month 30");
        let id = text(&made, "id");
        let listed = |of: &str| find(&place.done("key list"), id)[of].clone();
        assert_eq!(listed("disabled"), false);
        for (line, disabled) in [("disable", true), ("disable", true), ("enable", false)] {
            let done = place.done(&format!("key {line} {id}"));
            assert_eq!((&done["id"], &done["disabled"]), (&made["id"], &json!(disabled)));
            assert!(done.get("key").is_none(), "{done}");
            assert_eq!(listed("disabled"), disabled);
        }
        for (change, expected) in [
            ("--limit-day 1.5", json!({"day": 1.5, "month": 30})),
            ("--limit-total 100 --limit-month none", json!({"day": 1.5, "total": 100})),
            ("--limit-week 0", json!({"day": 1.5, "week": 0, "total": 100})),
            ("--limit-day none --limit-week none --limit-total none", json!({})),
        ] {
            let done = place.done(&format!("key limit {id} {change}"));
            let amounts = |limits: &Value| -> Vec<(String, f64)> {
                let members = limits.as_object().unwrap().iter();
                members.map(|(window, amount)| (window.clone(), amount.as_f64().unwrap())).collect()
            };
            assert_eq!(amounts(&done["limits"]), amounts(&expected), "{change}");
            assert_eq!(amounts(&listed("limits")), amounts(&expected), "{change}");
        }
        for line in ["disable 000000000000", "enable 000000000000", "limit 000000000000 --limit-day 1"] {
            assert!(place.failed(&format!("key {line}"), 1).contains("000000000000"), "{line}");
        }
        place.failed(&format!("key limit {id}"), 2);
        place.failed(&format!("key limit {id} --limit-day much"), 2);
        place.done(&format!("key revoke {id}"));
        for line in [format!("key enable {id}"), format!("key limit {id} --limit-day 1")] {
            assert!(place.failed(&line, 1).contains("the key is revoked"), "{line}");
        }
    });
}

#[test]
fn deletions_are_confirmed_in_sentences() {
    if !crate::kit::database::is_embedded("its commands have no configuration") {
        return;
    }
    let setup = crate::kit::host::Setup::new();
    crate::kit::store::prepare(&setup, |_| ());
    let place = Place::Free(Box::new(setup));
    place.done("workspace create acme");
    place.done("member create ada --workspace acme");
    let key = done(&place.run_with("key create --workspace acme --member ada", b""), "key create");
    let say = |line: &str| {
        let mut command = crate::kit::host::program();
        command.arg("--data").arg(place.data()).args(line.split_whitespace());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let id = text(&key, "id");
    assert_eq!(say(&format!("key disable {id}")), format!("Key {id} is switched off now.\n"));
    assert!(say("key list").contains("disabled"));
    assert_eq!(say(&format!("key enable {id}")), format!("Key {id} is switched on now.\n"));
    assert_eq!(say(&format!("key limit {id} --limit-day 2")), format!("Limits of key {id}: $2/day.\n"));
    assert!(say("member delete ada").ends_with("; 1 keys were revoked.\n"));
    assert!(say("workspace delete acme --yes").contains("with 1 members, 0 interns and 0 secrets"));
}
