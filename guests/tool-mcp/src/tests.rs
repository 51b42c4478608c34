//! Tests of the tool with scripted servers.

mod calls;

use std::collections::VecDeque;

use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::bindings::tools::{Output, ToolError};
use cofferdam_guest_kit::server_tool::{Network, Reading, Streaming};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::listing::Listing;
use super::settings::Settings;

/// A server that gives scripted answers in order.
#[derive(Default)]
struct Server {
    answers: VecDeque<Result<Response, HttpError>>,
    asked: Vec<Request>,
    /// The number of pieces of answers that were not read.
    unread: usize,
}

impl Server {
    fn says(mut self, status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.answers.push_back(Ok(Response {
            status,
            url: String::new(),
            headers,
            body: body.as_bytes().to_vec(),
        }));
        self
    }

    fn json(self, body: &Value) -> Self {
        self.says(200, &[("content-type", "application/json")], &body.to_string())
    }

    /// Adds the answer to `initialize`.
    fn begins(self) -> Self {
        let result = json!({"jsonrpc": "2.0", "id": "@id", "result": {"protocolVersion": "2025-06-18", "capabilities": {}}});
        let headers = [("content-type", "application/json"), ("mcp-session-id", "s1")];
        self.says(200, &headers, &result.to_string()).says(202, &[], "")
    }

    fn lists(self, tools: &Value, next: Option<&str>) -> Self {
        let result = json!({"tools": tools, "nextCursor": next});
        self.json(&json!({"jsonrpc": "2.0", "id": "@id", "result": result}))
    }

    fn body(&self, place: usize) -> Value {
        serde_json::from_slice(&self.asked[place].body).unwrap()
    }

    fn header(&self, place: usize, name: &str) -> Option<&str> {
        let found = self.asked[place].headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Network for Server {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        self.asked.push(request.clone());
        let mut response = self.answers.pop_front().unwrap_or(Err(HttpError::Unreachable))?;
        // The answer gets the id of this request.
        let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Ok(text) = std::str::from_utf8(&response.body) {
            response.body = text.replace("\"@id\"", &asked["id"].to_string()).into_bytes();
        }
        Ok(response)
    }
}

/// Each answer comes in pieces of 16 bytes. Pieces that were not read are counted.
impl Streaming for Server {
    fn send_until(
        &mut self,
        request: &Request,
        next: &mut dyn FnMut(&Response) -> Reading,
    ) -> Result<Response, HttpError> {
        let whole = self.send(request)?;
        let mut response = Response { body: Vec::new(), ..whole.clone() };
        let mut pieces = whole.body.chunks(16);
        for piece in pieces.by_ref() {
            response.body.extend_from_slice(piece);
            match next(&response) {
                Reading::More => {}
                Reading::Replies(replies) => replies.iter().for_each(|reply| drop(self.send(reply))),
                Reading::Enough => break,
            }
        }
        self.unread += pieces.len();
        Ok(response)
    }
}

fn entry(members: Value) -> Value {
    let mut entry = json!({"type": "mcp", "server_label": "l", "server_url": "https://mcp.test/mcp", "require_approval": "never"});
    entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    entry
}

fn settings(members: Value) -> Result<Settings, ToolError> {
    Settings::read(entry(members).to_string().as_bytes())
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}})
}

fn listed(server: &mut Server, settings: &Settings) -> Listing {
    super::listed(settings, server).unwrap()
}

fn names(listing: &Listing, settings: &Settings) -> Vec<String> {
    listing.functions(settings).into_iter().map(|function| function.name).collect()
}

fn message(error: ToolError) -> String {
    match error {
        ToolError::InvalidSettings(message)
        | ToolError::InvalidArguments(message)
        | ToolError::Failed(message) => message,
    }
}

fn called(server: &mut Server) -> Result<Output, ToolError> {
    called_with(server, |_| Ok(()))
}

fn called_with(
    server: &mut Server,
    keep: impl FnOnce(&Listing) -> Result<(), ToolError>,
) -> Result<Output, ToolError> {
    let settings = settings(json!({})).unwrap();
    let session = super::Session { id: Some("s1".into()), version: Some("2025-06-18".into()) };
    let listing = Listing { session, ..Listing::default() };
    super::call_and_keep("a", br#"{"x":1}"#, &settings, listing, server, keep)
}

fn result(result: &Value) -> Server {
    result_after(Server::default(), result)
}

fn result_after(server: Server, result: &Value) -> Server {
    server.json(&json!({"jsonrpc": "2.0", "id": "@id", "result": result}))
}

#[test]
fn entries_are_read_strictly() {
    let read = settings(json!({"authorization": "{{secret:token}}", "headers": {"X-Team": "a b"}})).unwrap();
    let headers = [
        ("x-team".to_owned(), "a b".to_owned()),
        ("authorization".to_owned(), "Bearer {{secret:token}}".to_owned()),
    ];
    assert_eq!(read.headers, headers);
    for (members, told) in [
        (json!({"server_label": ""}), "parameters.server_label must be a string"),
        (json!({"server_url": "mcp.test"}), "parameters.server_url must be an absolute https URL"),
        (
            json!({"server_url": "https://u:p@mcp.test/"}),
            "parameters.server_url must be an absolute https URL",
        ),
        (json!({"server_url": "file:///etc/passwd"}), "parameters.server_url must be an absolute https URL"),
        (json!({"connector_id": "connector_gmail"}), "parameters.connector_id is not available on this host"),
        (json!({"headers": {"Mcp-Session-Id": "x"}}), "parameters.headers has a name that no client may set"),
        (json!({"headers": {"a b": "x"}}), "parameters.headers has a name that no client may set"),
        (json!({"headers": {"a": "x\ny"}}), "parameters.headers has a value"),
        (json!({"headers": {"a": 1}}), "parameters.headers has a value"),
        (json!({"headers": {"a": "1", "A": "2"}}), "parameters.headers has a header twice"),
        (json!({"authorization": ""}), "parameters.authorization must be one line"),
        (
            json!({"authorization": "t", "headers": {"Authorization": "x"}}),
            "parameters.authorization is given in headers too",
        ),
        (json!({"allowed_tools": "x"}), "parameters.allowed_tools takes a list of names"),
        (json!({"allowed_tools": [1]}), "parameters.allowed_tools takes a list of names"),
        (json!({"require_approval": "sometimes"}), "parameters.require_approval takes always, never"),
        (
            json!({"require_approval": {"never": {"tool_names": "x"}}}),
            "parameters.require_approval.never takes a list",
        ),
    ] {
        let told_really = message(settings(members.clone()).unwrap_err());
        assert!(told_really.starts_with(told), "{members}: {told_really}");
    }
}

#[test]
fn tools_are_listed_page_by_page_in_one_session() {
    let mut server = Server::default().begins().lists(&json!([tool("a"), tool("b")]), Some("c1"));
    let stream = format!(
        "event: message\ndata: {}\n\ndata: {}\n\n",
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}),
        json!({"jsonrpc": "2.0", "id": "@id", "result": {"tools": [tool("c"), tool("a")]}})
    );
    server = server.says(200, &[("content-type", "text/event-stream; charset=utf-8")], &stream);
    let settings = settings(json!({"authorization": "t"})).unwrap();
    let listing = listed(&mut server, &settings);
    assert_eq!(names(&listing, &settings), ["l__a", "l__b", "l__c"]);
    assert_eq!(server.body(0)["params"]["protocolVersion"], "2025-06-18");
    assert_eq!((server.header(0, "mcp-session-id"), server.header(0, "mcp-protocol-version")), (None, None));
    assert_eq!(server.body(1), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(server.body(3)["params"], json!({"cursor": "c1"}));
    for place in 1..4 {
        assert_eq!(server.header(place, "mcp-session-id"), Some("s1"));
        assert_eq!(server.header(place, "mcp-protocol-version"), Some("2025-06-18"));
        assert_eq!(server.header(place, "authorization"), Some("Bearer t"));
        assert_eq!(server.header(place, "accept"), Some("application/json, text/event-stream"));
        assert_eq!(server.asked[place].redirects, 0);
    }
    assert_eq!(Listing::read(&listing.write()).unwrap(), listing);
    let item = listing.item(&settings);
    assert_eq!((&item["server_label"], &item["error"]), (&json!("l"), &Value::Null));
    assert_eq!(item["tools"][0]["input_schema"]["properties"]["a"]["type"], "string");
}

#[test]
fn the_client_chooses_tools_and_what_it_approves() {
    let mut reads = tool("reads");
    reads["annotations"] = json!({"readOnlyHint": true});
    let tools = json!([reads, tool("writes"), tool("other")]);
    let types = |members: Value| -> Vec<(String, Value)> {
        let settings = settings(members).unwrap();
        let listing = listed(&mut Server::default().begins().lists(&tools, None), &settings);
        let shown = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap()["x-item"]["type"].clone();
        listing.functions(&settings).into_iter().map(|f| (f.name, shown(&f.parameters))).collect()
    };
    let (call, ask) = (json!("mcp_call"), json!("mcp_approval_request"));
    let of = |list: &[(&str, &Value)]| -> Vec<(String, Value)> {
        list.iter().map(|(name, shown)| (format!("l__{name}"), (*shown).clone())).collect()
    };
    for (members, expected) in [
        (json!({}), of(&[("reads", &call), ("writes", &call), ("other", &call)])),
        (json!({"require_approval": null}), of(&[("reads", &ask), ("writes", &ask), ("other", &ask)])),
        (json!({"allowed_tools": ["other", "absent"]}), of(&[("other", &call)])),
        (json!({"allowed_tools": {"read_only": true}}), of(&[("reads", &call)])),
        (json!({"allowed_tools": []}), of(&[])),
        (
            json!({"require_approval": {"never": {"tool_names": ["reads", "writes"]}, "always": {"tool_names": ["writes"]}}}),
            of(&[("reads", &call), ("writes", &ask), ("other", &ask)]),
        ),
        (
            json!({"require_approval": {"never": {"read_only": true}}}),
            of(&[("reads", &call), ("writes", &ask), ("other", &ask)]),
        ),
    ] {
        assert_eq!(types(members.clone()), expected, "{members}");
    }
}

/// A server may have any number of tools as long as the client chooses few of them.
#[test]
fn the_limits_hold_for_the_tools_that_the_client_chooses() {
    let mut many: Vec<Value> = (0..200).map(|number| tool(&number.to_string())).collect();
    for tool in &mut many[150..] {
        tool["inputSchema"]["description"] = json!("x".repeat(31 << 10));
    }
    let settings = settings(json!({"allowed_tools": ["199", "7"]})).unwrap();
    let mut server =
        Server::default().begins().lists(&json!(many[..180]), Some("c")).lists(&json!(many[180..]), None);
    let listing = listed(&mut server, &settings);
    assert_eq!((&listing.error, names(&listing, &settings)), (&None, vec!["l__7".into(), "l__199".into()]));
}

#[test]
fn tools_that_cannot_be_offered_are_named_for_the_operator() {
    let mut large = tool("large\n");
    large["name"] = json!("large");
    large["inputSchema"]["description"] = json!("x".repeat(33 << 10));
    let mut odd = vec![tool("a"), tool(""), large, tool("b\nc"), json!({"name": "none"}), json!(7)];
    let left_out = |tools: &[Value], members: Value| {
        let settings = settings(members).unwrap();
        let listing = listed(&mut Server::default().begins().lists(&json!(tools), None), &settings);
        assert_eq!((&listing.error, names(&listing, &settings)), (&None, vec!["l__a".to_owned()]));
        listing.left_out
    };
    let told = left_out(&odd, json!({})).unwrap();
    assert!(told.starts_with("5 of the tools of the MCP server at mcp.test cannot be offered"), "{told}");
    assert!(told.ends_with("\"\", \"large\", \"b c\", \"none\", \"\""), "{told}");
    let told = left_out(&odd, json!({"allowed_tools": ["a", "large"]})).unwrap();
    assert!(told.starts_with("1 of") && told.ends_with(": \"large\""), "{told}");
    assert_eq!(left_out(&odd[..1], json!({})), None);
    odd.extend((0..900).map(|_| tool("")));
    let told = left_out(&odd, json!({})).unwrap();
    assert!(told.starts_with("905 of") && told.len() < 2_000, "{told}");
}

#[test]
fn misbehaving_servers_give_a_message() {
    let json = [("content-type", "application/json")];
    let error =
        json!({"jsonrpc": "2.0", "id": "@id", "error": {"code": -32602, "message": "bad\narguments"}})
            .to_string();
    for (server, words, code) in [
        (Server::default().says(200, &json, &error), "reports an error: bad arguments", -32602),
        (Server::default().says(400, &json, &error), "reports an error: bad arguments", -32602),
        (
            Server::default().says(200, &[("content-type", "text/html")], "<html>"),
            "not one of the protocol",
            -32600,
        ),
        (
            Server::default().says(200, &json, "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}"),
            "not one of the protocol",
            -32600,
        ),
        (
            Server::default().says(200, &json, "{\"jsonrpc\":\"2.0\",\"id\":\"@id\",\"result\":7}"),
            "is not an object",
            -32600,
        ),
        (
            Server::default().says(200, &[("content-type", "text/event-stream")], ": ping\n\n"),
            "did not answer in full",
            502,
        ),
        (Server::default().says(202, &[], ""), "not one of the protocol", -32600),
        (Server::default().says(307, &[("location", "https://x.test/")], ""), "redirects (HTTP 307)", 307),
        (Server::default().says(401, &[], ""), "refuses access (HTTP 401)", 401),
        (Server::default().says(500, &[], "x"), "HTTP 500", 500),
        (Server::default(), "was not reached", 502),
    ] {
        let mut server = server;
        let output = called(&mut server).unwrap();
        let item: Value = serde_json::from_slice(&output.item).unwrap();
        assert_eq!(
            (&item["error"]["code"], &item["error"]["message"]),
            (&json!(code), &json!(output.for_model))
        );
        assert!(output.for_model.contains(words), "{words}: {}", output.for_model);
    }
}

#[test]
fn lists_that_are_wrong_or_endless_are_errors_of_the_server() {
    let settings = settings(json!({})).unwrap();
    let told = |server: Server| listed(&mut { server }, &settings).error.unwrap();
    let endless = (2..40)
        .fold(Server::default().begins(), |server, _| server.lists(&json!([tool("a")]), Some("again")));
    assert!(told(endless).contains("more than 16 pages"));
    let many: Vec<Value> = (0..129).map(|number| tool(&number.to_string())).collect();
    assert!(told(Server::default().begins().lists(&json!(many), None)).contains("more than 128 tools"));
    let mut large = tool("a");
    large["inputSchema"]["description"] = json!("x".repeat(31 << 10));
    let large: Vec<Value> = (0..20)
        .map(|number| {
            let mut tool = large.clone();
            tool["name"] = json!(number.to_string());
            tool
        })
        .collect();
    assert!(told(Server::default().begins().lists(&json!(large), None)).contains("400 KiB"));
    assert!(told(Server::default().begins().lists(&json!({}), None)).contains("is not a list"));
    let cursor = "c".repeat(4_097);
    assert!(told(Server::default().begins().lists(&json!([]), Some(&cursor))).contains("4096 bytes"));
    let old = json!({"jsonrpc": "2.0", "id": "@id", "result": {"protocolVersion": "1999-01-01"}});
    assert!(told(Server::default().json(&old)).contains("no version of the protocol"));
    // Entries that are not tools are left out.
    let odd = json!([7, {"name": "x"}, {"name": "", "inputSchema": {}}, {"name": "y", "inputSchema": []},
        {"name": "z", "inputSchema": {"x-item": {"type": "evil"}}}]);
    let listing = listed(&mut Server::default().begins().lists(&odd, None), &settings);
    assert_eq!(names(&listing, &settings), ["l__z"]);
    let parameters: Value = serde_json::from_slice(&listing.functions(&settings)[0].parameters).unwrap();
    assert_eq!(parameters["x-item"], json!({"type": "mcp_call", "server_label": "l", "name": "z"}));
    assert_eq!((&parameters["type"], &parameters["properties"]), (&json!("object"), &json!({})));
}

#[test]
fn denied_requests_are_errors_of_the_request() {
    let settings = settings(json!({})).unwrap();
    for (error, field) in [
        (HttpError::Denied, "parameters.server_url is at a host"),
        (HttpError::Invalid, "parameters.headers or server_url"),
        (HttpError::SecretUnavailable, "parameters.headers or authorization name a secret"),
    ] {
        let mut server = Server { answers: VecDeque::from([Err(error)]), ..Server::default() };
        let told = message(super::listed(&settings, &mut server).unwrap_err());
        assert!(told.starts_with(field), "{told}");
    }
}

#[test]
fn every_request_has_its_own_id() {
    let settings = settings(json!({})).unwrap();
    let mut server =
        Server::default().begins().lists(&json!([tool("a")]), Some("more")).lists(&json!([tool("b")]), None);
    assert_eq!(listed(&mut server, &settings).error, None);
    for _ in 0..3 {
        server = result_after(server, &json!({}));
        called(&mut server).unwrap();
    }
    let bodies = (0..server.asked.len()).map(|place| server.body(place));
    let ids: Vec<u64> = bodies.filter_map(|body| body.get("id").map(|id| id.as_u64().unwrap())).collect();
    let distinct: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
    assert_eq!((ids.len(), distinct.len()), (6, 6), "{ids:?}");
    assert!(ids.iter().all(|id| *id < 1 << 53), "{ids:?}");
}

fn json_like() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0u32..4).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        let name = prop_oneof![
            Just("jsonrpc"),
            Just("id"),
            Just("result"),
            Just("error"),
            Just("tools"),
            Just("name"),
            Just("inputSchema"),
            Just("content"),
            Just("type"),
            Just("text"),
            Just("nextCursor"),
            Just("protocolVersion"),
            Just("isError"),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..5).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    /// With arbitrary answers of a server, nothing panics and every operation ends.
    #[test]
    fn any_answers_are_taken_or_refused(answers in proptest::collection::vec((200u16..500, json_like(), any::<bool>()), 0..6), result in json_like()) {
        let script = |first: Server| answers.iter().fold(first, |server, (status, body, streamed)| {
            if *streamed {
                server.says(*status, &[("content-type", "text/event-stream")], &format!("data: {body}\n\n"))
            } else {
                server.says(*status, &[("content-type", "application/json")], &body.to_string())
            }
        });
        let settings = settings(json!({})).unwrap();
        if let Ok(listing) = super::listed(&settings, &mut script(Server::default().begins())) {
            prop_assert!(listing.functions(&settings).iter().all(|function| serde_json::from_slice::<Value>(&function.parameters).is_ok()));
        }
        super::listed(&settings, &mut script(Server::default())).ok();
        called(&mut script(self::result(&result))).ok();
    }
}
