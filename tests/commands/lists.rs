//! Lists of one workspace, and of the newest records.

use super::{done, failed, find, in_both_ways};
use serde_json::Value;

#[test]
fn lists_are_of_one_workspace_and_of_the_newest_records_where_that_is_asked() {
    in_both_ways(|run| {
        let other = done(run, "workspace create other")["id"].clone();
        let mut made: Vec<[Value; 3]> = Vec::new();
        for name in ["a1", "a2", "a3"] {
            for workspace in ["default", "other"] {
                done(run, &format!("member create {name} --workspace {workspace}"));
                done(run, &format!("intern create {name} --workspace {workspace}"));
                let key = done(run, &format!("key create --workspace {workspace} --intern {name}"));
                made.push([workspace.into(), name.into(), key["id"].clone()]);
            }
        }
        let column = |line: &str, member: &str| -> Vec<Value> {
            done(run, line).as_array().unwrap().iter().map(|document| document[member].clone()).collect()
        };
        let keys_of_other: Vec<Value> =
            made.iter().filter(|[of, ..]| of == "other").map(|[_, _, id]| id.clone()).collect();

        assert_eq!(column("intern list --workspace other", "name"), ["a1", "a2", "a3"]);
        assert_eq!(column("intern list --workspace other", "workspace_id"), vec![other.clone(); 3]);
        assert_eq!(column("member list --workspace other", "name"), ["owner", "a1", "a2", "a3"]);
        assert_eq!(column("key list --workspace other", "id"), keys_of_other);
        let by_id = format!("key list --limit 2 --workspace {}", other.as_str().unwrap());
        assert_eq!(column(&by_id, "id"), keys_of_other[1..]);
        assert_eq!(column("key list --limit 1", "id"), keys_of_other[2..]);
        assert_eq!(column("intern list --limit 3", "name"), ["a2", "a3", "a3"]);
        assert_eq!(column("workspace list --limit 1", "name"), ["other"]);
        assert!(failed(run, "intern list --workspace none", 1).contains("none"));
        assert!(failed(run, "intern list --limit 0", 2).contains("--limit"));

        let key = keys_of_other[0].as_str().unwrap();
        let listed = done(run, "key list");
        assert_eq!(&done(run, &format!("key show {key}")), find(&listed, "id", key));
        assert!(failed(run, "key show zzzzzzzzzzzz", 1).contains("zzzzzzzzzzzz"));
    });
}
