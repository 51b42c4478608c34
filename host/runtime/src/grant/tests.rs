use super::*;
use cofferdam_egress::Placement;

fn tool(imports: &str, rest: &str) -> Manifest {
    let text = format!(
        "name = \"t\"\nkind = \"tool\"\nversion = \"1\"\nimports = {imports}\n{rest}\n[tool]\ntype = \"x\"\n"
    );
    Manifest::parse(&text).unwrap()
}

fn hosts(names: &[&str]) -> BTreeSet<HostName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn secrets(names: &[&str]) -> BTreeSet<SecretName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn rule(secret: &str, host: &str, header: &str) -> InjectionRule {
    InjectionRule {
        secret: secret.parse().unwrap(),
        host: host.parse().unwrap(),
        placement: Placement::header(header, "{}").unwrap(),
    }
}

fn grant(manifest: &Manifest, operator: &OperatorGrant) -> Grant {
    Grant::join(manifest, operator, &BTreeSet::new()).grant
}

#[test]
fn nothing_is_granted_without_a_request() {
    let manifest = tool("[\"clock\"]", "");
    let operator = OperatorGrant {
        hosts: hosts(&["a.test"]),
        any_host: true,
        secrets: secrets(&["k"]),
        imports: vec!["model".to_owned()],
        ..OperatorGrant::default()
    };
    let Joined { grant, denials, idle } = Grant::join(&manifest, &operator, &BTreeSet::from([Import::Clock]));
    assert_eq!(grant.imports, BTreeSet::from([Import::Clock]));
    assert!(grant.hosts.is_empty() && grant.secrets.is_empty());
    assert!(denials.is_empty());
    assert_eq!(idle, ["the host a.test", "every public host", "the import model", "the secret k"]);
}

#[test]
fn denials_print_the_line_that_allows_them() {
    let manifest = tool(
        "[\"http\", \"model\"]",
        "hosts = [\"a.test\", \"b.test\"]\nsecrets = [\"k\"]\nplaceholder_headers = [\"x-key\"]",
    );
    let joined = Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::new());
    assert!(joined.grant.imports.is_empty());
    let lines: Vec<_> = joined.denials.iter().map(|denial| denial.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "[plugins.t] hosts = [\"a.test\", \"b.test\"]",
            "[plugins.t] imports = [\"model\"]",
            "[plugins.t] secrets = [\"k\"]",
            "[plugins.t] placeholder_headers = [\"x-key\"]",
        ]
    );
}

#[test]
fn lines_for_later_refusals_name_the_side_that_refuses() {
    let manifest = tool("[\"http\"]", "hosts = [\"a.test\", \"b.test\"]\nsecrets = [\"*\"]");
    let operator = OperatorGrant { hosts: hosts(&["a.test"]), ..OperatorGrant::default() };
    let grant = grant(&manifest, &operator);
    let line = |host: &str| grant.line_for_host(&host.parse().unwrap());
    assert_eq!(line("b.test"), "[plugins.t] hosts = [\"a.test\", \"b.test\"]");
    assert_eq!(line("c.test"), "the manifest of t: hosts = [\"a.test\", \"b.test\", \"c.test\"]");
    assert_eq!(grant.line_for_secret(&"k".parse().unwrap()), "[plugins.t] secrets = [\"k\"]");
    assert_eq!(grant.line_for_header("x-key"), "the manifest of t: placeholder_headers = [\"x-key\"]");
}

#[test]
fn an_unrequested_import_is_denied_with_a_manifest_line() {
    let manifest = tool("[\"clock\"]", "");
    let joined = Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::from([Import::Random]));
    assert!(!joined.grant.imports.contains(&Import::Random));
    assert_eq!(joined.denials[0].line, "the manifest of t: imports = [\"clock\", \"random\"]");
}

#[test]
fn denials_of_one_key_share_one_line() {
    let manifest = tool("[\"model\", \"clock\", \"request\"]", "");
    let used = BTreeSet::from([Import::Model, Import::Random, Import::Scratch]);
    let joined = Grant::join(&manifest, &OperatorGrant::default(), &used);
    let denied: Vec<_> = joined.denials.iter().map(|denial| (&*denial.wanted, &*denial.line)).collect();
    assert_eq!(
        denied,
        [
            ("model, request", "[plugins.t] imports = [\"model\", \"request\"]"),
            (
                "random, scratch",
                "the manifest of t: imports = [\"clock\", \"model\", \"random\", \"request\", \"scratch\"]"
            ),
        ]
    );
}

#[test]
fn denied_http_without_hosts_is_told_as_what_the_operator_can_do() {
    let joined =
        Grant::join(&tool("[\"http\"]", ""), &OperatorGrant::default(), &BTreeSet::from([Import::Http]));
    assert_eq!(joined.denials[0].line, "have its author name hosts in t.toml, or remove the plugin");
    assert!(joined.denials[0].needs_author);
}

#[test]
fn a_manifest_that_requests_any_name_gets_the_granted_ones() {
    let manifest = tool("[\"http\"]", "hosts = [\"*\"]\nsecrets = [\"*\"]");
    let nothing = Grant::join(&manifest, &OperatorGrant::default(), &BTreeSet::from([Import::Http]));
    assert!(nothing.grant.imports.is_empty());
    assert_eq!(nothing.denials[0].line, "[plugins.t] hosts = [\"*\"]");
    let operator =
        OperatorGrant { hosts: hosts(&["a.test"]), secrets: secrets(&["k"]), ..OperatorGrant::default() };
    let joined = Grant::join(&manifest, &operator, &BTreeSet::from([Import::Http]));
    assert!(joined.denials.is_empty() && joined.idle.is_empty());
    assert_eq!(joined.grant.secrets, secrets(&["k"]));
    assert_eq!(joined.grant.unplaced_secrets().count(), 1);
}

#[test]
fn injections_need_their_secret_and_their_host_by_name() {
    let manifest = tool(
        "[\"http\"]",
        "hosts = [\"*\"]\nsecrets = [\"*\"]\n\
         [[injections]]\nsecret = \"k\"\nhost = \"a.test\"\nheader = \"x-key\"\nformat = \"{}\"",
    );
    let granted =
        OperatorGrant { hosts: hosts(&["a.test"]), secrets: secrets(&["k"]), ..OperatorGrant::default() };
    assert_eq!(grant(&manifest, &granted).injections, [rule("k", "a.test", "x-key")]);
    assert_eq!(grant(&manifest, &granted).unplaced_secrets().count(), 0);
    for less in [
        OperatorGrant { hosts: hosts(&[]), any_host: true, ..granted.clone() },
        OperatorGrant { hosts: hosts(&["b.test"]), ..granted.clone() },
        OperatorGrant { secrets: secrets(&["other"]), ..granted },
    ] {
        assert!(grant(&manifest, &less).injections.is_empty());
    }
}

#[test]
fn the_operators_injections_replace_those_of_the_manifest() {
    let manifest = tool(
        "[\"http\"]",
        "hosts = [\"*\"]\nsecrets = [\"*\"]\n\
         [[injections]]\nsecret = \"k\"\nhost = \"a.test\"\nheader = \"x-key\"\nformat = \"{}\"\n\
         [[injections]]\nsecret = \"l\"\nhost = \"a.test\"\nheader = \"x-other\"\nformat = \"{}\"\n\
         [[injections]]\nsecret = \"l\"\nhost = \"b.test\"\nheader = \"x-key\"\nformat = \"{}\"",
    );
    let operator = OperatorGrant {
        hosts: hosts(&["a.test", "b.test"]),
        secrets: secrets(&["k", "l", "m"]),
        injections: vec![rule("k", "a.test", "x-new"), rule("m", "a.test", "x-other")],
        ..OperatorGrant::default()
    };
    let injections = grant(&manifest, &operator).injections;
    let expected =
        [rule("k", "a.test", "x-new"), rule("m", "a.test", "x-other"), rule("l", "b.test", "x-key")];
    assert_eq!(injections, expected);
}

#[test]
fn the_operators_limits_replace_the_manifests_in_both_directions() {
    let manifest = tool("[]", "[limits]\nmemory_mib = 100\ndeadline_ms = 1000");
    for (memory_mib, memory, deadline_ms) in [(50, 50, 5000), (200, 200, 500), (4000, 256, 1000)] {
        let operator = OperatorGrant {
            memory_mib: Some(memory_mib),
            deadline_ms: Some(deadline_ms),
            ..OperatorGrant::default()
        };
        let grant = grant(&manifest, &operator);
        assert_eq!(grant.memory_bytes, memory << 20);
        assert_eq!(grant.deadline.as_millis(), u128::from(deadline_ms));
        assert_eq!(grant.deadline_for(32 << 20), grant.deadline, "the operator set it");
    }
}

#[test]
fn a_long_input_gets_more_processor_time_than_the_manifest_asks_for() {
    let manifest = tool("[]", "[limits]\ndeadline_ms = 1000");
    let grant = grant(&manifest, &OperatorGrant::default());
    for (input_bytes, expected_ms) in [(0, 1_000), (1_000_000, 1_100), (32_000_000, 4_200)] {
        assert_eq!(grant.deadline_for(input_bytes).as_millis(), expected_ms, "{input_bytes} bytes");
    }
    assert!(grant.deadline_for(usize::MAX) > grant.deadline);
}

#[test]
fn settings_are_always_an_object() {
    let manifest = tool("[]", "");
    let operator = OperatorGrant { config: serde_json::json!({"a": 1}), ..OperatorGrant::default() };
    assert_eq!(grant(&manifest, &operator).settings, b"{\"a\":1}");
    assert_eq!(grant(&manifest, &OperatorGrant::default()).settings, b"{}");
}
