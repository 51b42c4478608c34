//! The order of versions, and updates that ask for more.

use super::changes::until_version;
use super::{Commands, Edition, NAME, setup};
use crate::kit::admin::Admin;
use serde_json::json;

/// A manifest that asks for hosts.
fn asking(edition: usize, version: &str, hosts: &str) -> Edition {
    let more = format!("imports = [\"clock\", \"http\"]\nhosts = [{hosts}]\nsecrets = [\"key\"]");
    Edition::new(edition, version, &more)
}

#[test]
fn only_a_newer_version_is_an_update_unless_the_operator_says_so() {
    let setup = setup();
    let (old, new) = (Edition::plain(0, "0.9.0"), Edition::plain(1, "0.10.0"));
    setup.done(&["plugin", "install", &new.file()]);
    let complaint = setup.refused(&["plugin", "update", &old.file()]);
    assert!(complaint.contains("0.9.0 is older than 0.10.0"), "{complaint}");
    assert!(complaint.contains("`--allow-downgrade`"), "{complaint}");
    setup.done(&["plugin", "update", &old.file(), "--allow-downgrade"]);
    assert_eq!(setup.version().as_deref(), Some("0.9.0"));
    let same = Edition::plain(1, "0.9.0");
    let complaint = setup.refused(&["plugin", "update", &same.file()]);
    assert!(complaint.contains("0.9.0 is installed with other bytes") && complaint.contains("`--replace`"));
    setup.done(&["plugin", "update", &same.file(), "--replace"]);
    let again = setup.done(&["plugin", "update", &same.file()]);
    assert_eq!(again["state"], "unchanged");
    // One version is kept beside the one that serves. Both have the same manifest, which is one file.
    assert_eq!(setup.files().len(), 3, "{:?}", setup.files());
}

#[test]
fn an_update_that_asks_for_more_is_held_until_it_is_accepted() {
    let host = setup().start();
    host.done(&["plugin", "install", &asking(0, "0.1.0", "\"a.test\"").file()]);
    host.done(&["plugin", "grant", NAME, "--host", "a.test", "--secret", "key"]);
    let held = host.done(&["plugin", "update", &asking(1, "0.2.0", "\"a.test\", \"b.test\"").file()]);
    assert_eq!(
        (&held["state"], &held["from"], &held["asks_more"]),
        (&"held".into(), &"0.1.0".into(), &json!(["host b.test"]))
    );
    until_version(&host, "0.1.0");
    let listed = host.listed().unwrap();
    let digest = listed["held"]["digest"].clone();
    assert_eq!(listed["held"], json!({"version": "0.2.0", "digest": digest, "asks_more": ["host b.test"]}));
    let status = host.done(&["status"]);
    assert_eq!(status["held_plugins"][0]["version"], "0.2.0");
    let doctor = host.output(&["doctor", "--offline"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("the update to 0.2.0 is held, 0.1.0 serves"), "{doctor}");
    let printed = host.done(&["plugin", "grant", NAME, "--accept", "--print"]);
    assert_eq!((&printed["written"], &printed["asks_more"]), (&false.into(), &json!(["host b.test"])));
    assert_eq!(host.version().as_deref(), Some("0.1.0"));
    let accepted = host.done(&["plugin", "grant", NAME, "--accept"]);
    assert_eq!((&accepted["state"], &accepted["missing"]), (&"accepted".into(), &json!([])));
    assert!(accepted["lines"].as_str().unwrap().contains("\"b.test\""), "{accepted}");
    until_version(&host, "0.2.0");
    let listed = host.listed().unwrap();
    assert_eq!(listed["granted"]["hosts"], json!(["a.test", "b.test"]));
    assert_eq!(listed.get("held"), None);
    host.done(&["plugin", "rollback", NAME]);
    until_version(&host, "0.1.0");
}

/// Another update of the same version takes the place of the one that the operator looked at.
#[tokio::test]
async fn the_update_that_is_accepted_is_the_one_that_was_shown() {
    let host = setup().start();
    host.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    let mut digests = Vec::new();
    for hosts in ["\"a.test\"", "\"a.test\", \"b.test\""] {
        let held = host.done(&["plugin", "update", &asking(0, "0.2.0", hosts).file()]);
        digests.push(held["digest"].as_str().unwrap().to_owned());
        let listed = host.listed().unwrap();
        assert_eq!(listed["held"]["digest"], held["digest"]);
    }
    let [shown, held] = digests.try_into().unwrap();
    let admin = Admin::new(&host);
    let accept = |digest: &str| json!({"name": NAME, "accept": true, "digest": digest});
    let undecided = admin.change("plugin/grant", &json!({"name": NAME, "accept": true})).await;
    assert_eq!(undecided.status, 400, "{}", undecided.text);
    assert!(undecided.text.contains("`digest`"), "{}", undecided.text);
    let other = admin.change("plugin/grant", &accept(&shown)).await;
    assert_eq!(other.status, 409, "{}", other.text);
    let command = ["plugin", "grant", NAME, "--accept", "--digest"];
    let complaint = host.refused(&[&command[..], &[&shown]].concat());
    for text in [&other.text, &complaint] {
        assert!(text.contains(&shown) && text.contains(&held), "{text}");
    }
    assert_eq!(host.version().as_deref(), Some("0.1.0"));
    // The command that is shown accepts what is shown.
    let remedy = String::from_utf8(host.output(&["doctor", "--offline"]).stdout).unwrap();
    assert!(
        remedy.contains(&format!("`cofferdam plugin grant {NAME} --accept --digest {held}`")),
        "{remedy}"
    );
    let accepted = admin.change("plugin/grant", &accept(&held)).await;
    assert_eq!((accepted.status, &accepted.body["state"]), (200, &json!("accepted")), "{}", accepted.text);
    until_version(&host, "0.2.0");
}

#[test]
fn a_held_update_survives_a_restart_and_can_be_dropped() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    for (version, more) in [
        ("0.2.0", "imports = [\"clock\", \"random\"]"),
        ("0.3.0", "imports = [\"clock\"]\n[limits]\nmemory_mib = 100"),
    ] {
        let held = setup.done(&["plugin", "update", &Edition::new(1, version, more).file()]);
        assert_eq!(held["state"], "held");
        assert_eq!(setup.files().len(), 4, "one held version at most: {:?}", setup.files());
    }
    assert_eq!(setup.listed().unwrap()["held"]["asks_more"], json!(["limit memory_mib 100, was 64"]));
    let host = setup.start();
    assert_eq!(host.version().as_deref(), Some("0.1.0"));
    assert_eq!(host.listed().unwrap()["held"]["version"], "0.3.0");
    let dropped = host.done(&["plugin", "remove", NAME, "--held"]);
    assert_eq!((&dropped["state"], &dropped["version"]), (&"dropped".into(), &"0.3.0".into()));
    assert_eq!(host.listed().unwrap().get("held"), None);
    assert_eq!(host.files().len(), 2);
    assert!(
        host.refused(&["plugin", "grant", NAME, "--accept"]).contains("no update of tool-clockwork is held")
    );
    // An update that asks for no more replaces the one that is held.
    host.done(&["plugin", "update", &Edition::new(1, "0.2.0", "imports = [\"clock\", \"random\"]").file()]);
    host.done(&["plugin", "update", &Edition::plain(1, "0.2.1").file()]);
    until_version(&host, "0.2.1");
    assert_eq!(host.listed().unwrap().get("held"), None);
    // It does not replace a newer one.
    host.done(&["plugin", "update", &Edition::new(1, "0.4.0", "imports = [\"clock\", \"random\"]").file()]);
    host.done(&["plugin", "update", &Edition::plain(0, "0.3.0").file()]);
    until_version(&host, "0.3.0");
    assert_eq!(host.listed().unwrap()["held"]["version"], "0.4.0");
    host.done(&["plugin", "grant", NAME, "--accept"]);
    until_version(&host, "0.4.0");
}
