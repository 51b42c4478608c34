//! Operators' commands about money.

use super::{done, failed, find, in_both_ways};
use serde_json::json;

#[test]
fn credit_is_added_shown_and_removed() {
    in_both_ways(|run| {
        let shown = done(run, "credits show default");
        assert_eq!((&shown["workspace"], &shown["credit"]), (&json!("default"), &json!("unlimited")));
        assert_eq!((&shown["added"], &shown["left"]), (&json!(null), &json!(null)));
        let shown = done(run, "credits add default 12.50");
        assert_eq!((&shown["credit"], &shown["added"]), (&json!("prepaid"), &json!(12.5)));
        let shown = done(run, "credits add default 0.000000000001");
        assert_eq!(shown["left"], json!(12.500_000_000_001));
        assert_eq!((&shown["spent"], &shown["reserved"]), (&json!(0), &json!(0)));
        assert_eq!(done(run, "credits show default"), shown);
        assert_eq!(done(run, "credits unlimited default")["credit"], "unlimited");
        assert_eq!(done(run, "credits add default 1")["left"], 1, "a new balance");
        let records = done(run, "vault audit");
        let entries = records.as_array().unwrap().iter().flat_map(|it| it["entries"].as_array().unwrap());
        let actions: Vec<_> = entries.filter_map(|entry| entry["action"].as_str()).collect();
        let about_credit: Vec<_> = actions.into_iter().filter(|it| it.starts_with("credit_")).collect();
        assert_eq!(about_credit, ["credit_added", "credit_added", "credit_unlimited", "credit_added"]);
    });
}

#[test]
fn invalid_amounts_change_nothing() {
    in_both_ways(|run| {
        for (amount, why) in [
            ("1,50", "an amount is a number of dollars"),
            ("NaN", "an amount is a number of dollars"),
            ("0.0000000000001", "at most 12 digits after the point"),
            ("18446745", "at most 18446744 dollars"),
        ] {
            let error = failed(run, &format!("credits add default {amount}"), 2);
            assert!(error.contains(why), "{amount}: {error}");
        }
        failed(run, "credits add default -- -1", 2);
        assert!(failed(run, "credits add default 0", 1).contains("more than 0"));
        assert!(failed(run, "credits add nobody 1", 1).contains("no workspace `nobody`"));
        assert_eq!(done(run, "credits show default")["credit"], "unlimited");
        done(run, "credits add default 18446744");
        assert!(failed(run, "credits add default 1", 1).contains("at most 18446744 dollars in all"));
    });
}

#[test]
fn limits_of_a_key_are_set_and_listed() {
    in_both_ways(|run| {
        let line = "key create --workspace default --limit-week 5 --limit-month 0.5";
        let made = done(run, line);
        assert_eq!(made["limits"], json!({"week": 5, "month": 0.5}));
        let keys = done(run, "key list");
        let listed = find(&keys, "id", made["id"].as_str().unwrap());
        assert_eq!(listed["limits"], made["limits"]);
        assert_eq!(listed["spent"], json!({"day": 0, "week": 0, "month": 0, "total": 0}));
        failed(run, "key create --workspace default --limit-day much", 2);
    });
}

#[test]
fn usage_is_shown_for_the_days_that_are_kept() {
    in_both_ways(|run| {
        for line in ["usage", "usage --by key --days 92", "usage --by model --workspace default --limit 5"] {
            let usage = done(run, line);
            assert_eq!((&usage["groups"], &usage["total"]["requests"]), (&json!([]), &json!(0)), "{line}");
        }
        // A start before the kept days is moved to the first kept day, as with the maximum of
        // `--days`.
        let all = done(run, "usage --since 1999-01-31");
        assert_eq!(all["from"], done(run, "usage --days 92")["from"]);
        assert!(failed(run, "usage --since yesterday", 2).contains("written like 2026-01-31"));
        for line in
            ["usage --days 93", "usage --days 0", "usage --by colour", "usage --days 3 --since 2026-01-31"]
        {
            failed(run, line, 2);
        }
        failed(run, "usage --workspace nobody", 1);
    });
}
