use proptest::prelude::*;

use super::{Asked, Framing, HookPhase, Import, Manifest, OnStream, PluginKind};
use cofferdam_egress::Placement;

const ROUTER: &str = "name = \"router\"\nkind = \"router\"\nversion = \"1.0.0\"\n";

const QUERY: &str = "secret = \"k\"\nhost = \"a.b\"\nquery = \"key\"";

fn tool(rest: &str) -> String {
    format!(
        "name = \"t\"\nkind = \"tool\"\nversion = \"1\"\nimports = [\"http\"]\n{rest}\n[tool]\ntype = \"x\"\n"
    )
}

fn injection(keys: &str) -> String {
    format!("[[injections]]\n{keys}")
}

fn refused(text: &str) -> String {
    Manifest::parse(text).unwrap_err().to_string()
}

#[test]
fn a_short_manifest_gets_the_defaults_of_its_kind() {
    let manifest = Manifest::parse(ROUTER).unwrap();
    assert_eq!(manifest.kind, PluginKind::Router);
    assert_eq!(manifest.component, "router.wasm");
    assert_eq!(manifest.memory_mib(), 32);
    assert_eq!(manifest.deadline().as_millis(), 20);
    assert!(manifest.imports.is_empty());
}

#[test]
fn a_model_router_names_its_settings_entry() {
    let manifest = Manifest::parse(&format!("{ROUTER}[router]\nid = \"own-router\"\n")).unwrap();
    assert_eq!(manifest.entry_id(), Some("own-router"));
    assert_eq!(Manifest::parse(ROUTER).unwrap().entry_id(), None);
    assert_eq!(refused(&format!("{ROUTER}[router]\nid = \"\"\n")), "line 5: `id` must not be empty");
    assert!(refused(&tool("[router]\nid = \"x\"")).contains("is a table of router plugins"));
}

#[test]
fn a_provider_with_all_keys_is_parsed() {
    let text = "name = \"provider-x\"\nkind = \"provider\"\nversion = \"1\"\ncomponent = \"x.wasm\"\n\
        [limits]\nmemory_mib = 128\ndeadline_ms = 500\n[provider]\nframing = \"ndjson\"\n\
        credential = { header = \"authorization\", format = \"Bearer {}\" }\n\
        response_headers = [\"retry-after\"]\ntools = [\"function\"]\n\
        options = [\"top_k\"]\nbetas = [\"b-1\"]\n[provider.hosted_tools]\nweb_search = [\"filters\"]\n";
    let manifest = Manifest::parse(text).unwrap();
    let provider = manifest.provider.as_ref().unwrap();
    assert_eq!(provider.framing, Framing::Ndjson);
    assert_eq!(provider.credential.as_ref().unwrap().format, "Bearer {}");
    assert_eq!(manifest.memory_mib(), 128);
    assert_eq!(
        (provider.options.as_slice(), provider.betas.as_slice()),
        (&["top_k".to_owned()][..], &["b-1".to_owned()][..])
    );
    assert!(provider.hosted_tools["web_search"].contains("filters"));
}

#[test]
fn options_and_betas_are_unique_without_regard_to_case() {
    let provider = "name = \"provider-x\"\nkind = \"provider\"\nversion = \"1\"\n[provider]\n";
    for (key, names) in [("options", "\"top_k\", \"Top_K\""), ("betas", "\"b\", \"b\""), ("options", "\"\"")]
    {
        let problem = refused(&format!("{provider}{key} = [{names}]\n"));
        assert_eq!(problem, format!("line 5: `{key}` takes names, each once in whatever case"));
    }
}

#[test]
fn hooks_and_tools_name_their_phases_and_imports() {
    let hook = "name = \"h\"\nkind = \"hook\"\nversion = \"1\"\nimports = [\"model\", \"tool-call\"]\n\
        [hook]\nid = \"healing\"\nphases = [\"on-response\"]\n";
    let hook = Manifest::parse(hook).unwrap();
    assert!(hook.imports.contains(&Import::ToolCall));
    let table = hook.hook.unwrap();
    assert!(table.phases.contains(&HookPhase::OnResponse));
    assert_eq!(table.on_stream, OnStream::Hold);
    let tool = "name = \"t\"\nkind = \"tool\"\nversion = \"1\"\n[tool]\ntype = \"datetime\"\n";
    assert_eq!(Manifest::parse(tool).unwrap().tool.unwrap().tool_type, "datetime");
}

#[test]
fn a_tool_declares_optional_imports_and_events() {
    let text = |rest: &str| {
        format!("name = \"t\"\nkind = \"tool\"\nversion = \"1\"\nimports = [\"model\", \"request\"]\n{rest}")
    };
    let tool = |item: &str| format!("[tool]\ntype = \"x\"\n[[tool.items]]\ntype = \"service:x\"\n{item}");
    let told = tool("events = \"x_call\"\nquestions = true");
    let manifest = Manifest::parse(&text(&format!("optional_imports = [\"request\"]\n{told}"))).unwrap();
    assert_eq!(manifest.optional_imports, [Import::Request].into());
    let tool_table = manifest.tool.unwrap();
    let item = tool_table.own_item().unwrap();
    assert_eq!((item.events.as_deref(), item.questions), (Some("x_call"), true));
    for (wrong, message) in [
        (text(&format!("optional_imports = [\"http\"]\n{told}")), "names http, which `imports`"),
        (text(&tool("events = \"x.y\"")), "lower-case letters"),
        (text(&tool("questions = true")), "is needed"),
    ] {
        assert!(refused(&wrong).contains(message), "{}", refused(&wrong));
    }
}

#[test]
fn a_tool_requests_hosts_secrets_and_places() {
    let asks = "hosts = [\"API.test.\"]\nsecrets = [\"*\"]\nplaceholder_headers = [\"x-key\"]\n";
    let rule = "secret = \"k\"\nhost = \"api.test\"\nheader = \"X-Token\"\nformat = \"token {}\"";
    let manifest = Manifest::parse(&tool(&format!("{asks}{}", injection(rule)))).unwrap();
    assert_eq!(manifest.hosts.named().map(|host| host.as_str()).collect::<Vec<_>>(), ["api.test"]);
    assert_eq!(manifest.secrets, Asked::Any);
    assert!(manifest.placeholder_headers.contains("x-key"));
    assert_eq!(manifest.injections[0].placement, Placement::header("x-token", "token {}").unwrap());
}

#[test]
fn refusals_name_the_line_and_the_key() {
    let cases = [
        (format!("{ROUTER}memory = 3\n"), "line 4: unknown field `memory`"),
        (format!("{ROUTER}[limits]\nmemory_mb = 3\n"), "line 5: unknown field `memory_mb`"),
        (format!("{ROUTER}[limits]\nmemory_mib = 4096\n"), "line 5: `memory_mib` takes 1 to 256"),
        (format!("{ROUTER}[limits]\ndeadline_ms = 0\n"), "line 5: `deadline_ms` takes 1 to 60000"),
        (
            format!("{ROUTER}imports = [\"http\"]\n"),
            "line 4: `imports` names http, which a router cannot have",
        ),
        (format!("{ROUTER}imports = [\"disk\"]\n"), "line 4: unknown variant `disk`"),
        (format!("{ROUTER}component = \"../x.wasm\"\n"), "line 4: `component` names a file"),
        (format!("{ROUTER}component = \"x.cwasm\"\n"), "line 4: `component` names a file"),
        (format!("{ROUTER}[tool]\ntype = \"x\"\n"), "line 4: `tool` is a table of tool plugins"),
        (ROUTER.replace("\"router\"\nkind", "\"Router\"\nkind"), "line 1: `name` takes lower-case"),
        (ROUTER.replace("= \"router\"\nversion", "= \"hook\"\nversion"), "line 2: `kind` = \"hook\" needs"),
        (
            "name = \"t\"\nkind = \"tool\"\nversion = \"1\"\nhosts = [\"a.b\"]\n".to_owned(),
            "line 4: `hosts` needs",
        ),
        (tool("hosts = [\"*\", \"a.b\"]"), "line 5: `hosts` takes exact host names, or \"*\" alone"),
        (tool("hosts = [\"127.0.0.1\"]"), "line 5: `hosts` takes exact host names"),
        (tool("hosts = [\"a.b:443\"]"), "line 5: `hosts` takes exact host names"),
        (tool("secrets = [\"Key\"]"), "line 5: `secrets` takes names of secrets"),
        (tool("placeholder_headers = [\"host\"]"), "line 5: `placeholder_headers` takes"),
        (tool("placeholder_headers = [\"X-Key\"]"), "line 5: `placeholder_headers` takes"),
        (tool(&injection("secret = \"k\"")), "line 5: missing field `host`"),
        (tool(&injection("secret = \"k\"\nhost = \"a.b\"")), "line 5: `secret` needs a place"),
        (tool(&injection(QUERY)), "line 5: `injections` names k, which `secrets` does not"),
        (
            tool(&format!("secrets = [\"*\"]\n{}", injection(QUERY))),
            "line 6: `injections` names a.b, which `hosts` does not",
        ),
        (
            tool(&format!("secrets = [\"*\"]\nhosts = [\"*\"]\n{0}\n{0}", injection(QUERY))),
            "line 7: `injections` puts two secrets into one place for a.b",
        ),
        (format!("{ROUTER}description = \"a\\u001b[8m\"\n"), "line 4: `description` has a control character"),
        (format!("{ROUTER}[limits]\n\"a\\nb\" = 1\n"), "line 5: `a\\nb` has a control character"),
        (
            "name = \"h\"\nkind = \"hook\"\nversion = \"1\"\n[hook]\nid = \"a\\u202eb\"\n".to_owned(),
            "line 5: `id` has a control character",
        ),
        ("name = 3".to_owned(), "line 1: invalid type: integer"),
        (String::new(), "line 1: missing field `name`"),
    ];
    for (text, expected) in cases {
        let message = refused(&text);
        assert!(message.starts_with(expected), "{message:?} does not start with {expected:?}");
        assert_eq!(message.lines().count(), 1);
    }
}

#[test]
fn a_credential_needs_one_place_for_the_secret() {
    for (format, problem) in [
        ("Bearer", "`credential` needs a format"),
        ("{}{}", "`credential` needs a format"),
        ("a\\n{}", "`format` has a control character"),
    ] {
        let text = format!(
            "name = \"p\"\nkind = \"provider\"\nversion = \"1\"\n[provider]\n\
             credential = {{ header = \"x-api-key\", format = \"{format}\" }}\n"
        );
        assert!(refused(&text).starts_with(&format!("line 5: {problem}")), "{format}");
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,200}") {
        drop(Manifest::parse(&text));
    }

    #[test]
    fn parsing_near_misses_never_panics(cut in 0usize..200, extra in "\\PC{0,20}") {
        let text: String = ROUTER.chars().take(cut).chain(extra.chars()).collect();
        drop(Manifest::parse(&text));
    }
}
