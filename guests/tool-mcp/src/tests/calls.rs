//! Calls of tools: their results, sessions and errors.

use super::*;

#[test]
fn results_become_text() {
    for (content, text) in [
        (json!({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}), "one\ntwo"),
        (json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}"),
        (
            json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}),
            "[A picture was left out: image/png]",
        ),
        (
            json!({"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "body"}}]}),
            "[Resource u:1]\nbody",
        ),
        (
            json!({"content": [{"type": "resource_link", "name": "n", "uri": "u:1"}, {"type": "new"}, 7]}),
            "[Resource n: u:1]",
        ),
        (
            json!({"content": [{"type": "image", "mimeType": "image/png"}], "structuredContent": {"a": 1}}),
            "[A picture was left out: image/png]\n{\"a\":1}",
        ),
        (
            json!({"content": [{"type": "text", "text": ""}, {"type": "text", "text": " "}],
                "structuredContent": {"a": 1}}),
            "{\"a\":1}",
        ),
        (json!({"content": 7}), ""),
        (json!({}), ""),
    ] {
        let mut server = result(&content);
        let output = called(&mut server).unwrap();
        let item: Value = serde_json::from_slice(&output.item).unwrap();
        assert_eq!((&item["output"], &item["error"]), (&json!(text), &Value::Null), "{content}");
        assert_eq!(output.for_model, if text.is_empty() { "(no output)" } else { text });
        assert_eq!(server.body(0)["params"], json!({"name": "a", "arguments": {"x": 1}}));
    }
    let failed =
        called(&mut result(&json!({"isError": true, "content": [{"type": "text", "text": "no such city"}]})))
            .unwrap();
    assert_eq!(failed.for_model, "The tool reports an error:\nno such city");
    let item: Value = serde_json::from_slice(&failed.item).unwrap();
    let content = json!([{"type": "text", "text": "no such city"}]);
    assert_eq!(
        item,
        json!({"error": {"type": "mcp_tool_execution_error", "content": content}, "output": null})
    );
}

#[test]
fn a_stream_is_read_until_the_answer_has_come() {
    let answer = json!({"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "é\u{2028}"}]}});
    let other = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let rest = ": still here\n\n".repeat(40);
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("data: {other}{end}{end}event: message{end}data: {answer}{end}{end}{rest}");
        let headers = [("content-type", "text/event-stream")];
        let mut server = Server::default().says(200, &headers, &stream);
        assert_eq!(called(&mut server).unwrap().for_model, "é\u{2028}");
        assert!(server.unread > 30, "{}", server.unread);
    }
}

#[test]
fn an_answer_after_very_many_events_is_found() {
    let stream = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n".repeat(5_000);
    let answer =
        json!({"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "done"}]}});
    let stream = format!("{stream}data: {answer}\n\n");
    let mut server = Server::default().says(200, &[("content-type", "text/event-stream")], &stream);
    assert_eq!(called(&mut server).unwrap().for_model, "done");
}

/// A server that asks for input waits for the answer before it answers the call.
#[test]
fn requests_of_the_server_are_answered_while_its_stream_is_read() {
    let asks = |id: &Value, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}});
    let answer =
        json!({"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "done"}]}});
    let messages =
        [asks(&json!(7), "ping"), asks(&json!("e"), "elicitation/create"), asks(&Value::Null, "ping")];
    let stream: String =
        messages.iter().chain([&answer]).map(|message| format!("data: {message}\n\n")).collect();
    let mut server = Server::default().says(200, &[("content-type", "text/event-stream")], &stream);
    assert_eq!(called(&mut server).unwrap().for_model, "done");
    assert_eq!(server.asked.len(), 3);
    assert_eq!(server.body(1), json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    let refused = server.body(2);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("e"), &json!(-32601)));
    assert_eq!(server.header(2, "mcp-session-id"), Some("s1"));

    let stream = format!("{}data: {answer}\n\n", format!("data: {}\n\n", messages[0]).repeat(50));
    let mut server = Server::default().says(200, &[("content-type", "text/event-stream")], &stream);
    assert_eq!(called(&mut server).unwrap().for_model, "done");
    assert_eq!(server.asked.len(), 9, "one call and eight answers to the server");
}

#[test]
fn unused_sessions_are_ended() {
    let settings = settings(json!({"authorization": "t"})).unwrap();
    let mut server = Server::default().begins().json(&json!({}));
    assert!(listed(&mut server, &settings).error.is_some());
    let last = server.asked.len() - 1;
    assert_eq!((server.asked[last].method.as_str(), last), ("DELETE", 3));
    assert_eq!(server.header(last, "mcp-session-id"), Some("s1"));
    assert_eq!(server.header(last, "authorization"), Some("Bearer t"));
    // A server without sessions has no session to end.
    let mut server = Server::default();
    crate::Session::default().end(&settings, &mut server);
    assert!(server.asked.is_empty());
}

#[test]
fn a_lost_session_is_restarted_once() {
    let answer =
        json!({"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "late"}]}});
    let mut server = Server::default().says(404, &[], "").begins().json(&answer);
    assert_eq!(called(&mut server).unwrap().for_model, "late");
    assert_eq!(server.asked.len(), 4);
    let mut server = Server::default().says(404, &[], "").begins().says(404, &[], "");
    assert!(called(&mut server).unwrap().for_model.contains("ended the session"));
}

/// A call that runs longer must not put back the session that another call has replaced meanwhile.
#[test]
fn only_a_call_that_started_a_session_keeps_it() {
    let mut kept = None;
    let mut keep = |listing: &Listing| {
        kept = listing.session.id.clone();
        Ok(())
    };
    called_with(&mut result(&json!({})), &mut keep).unwrap();
    called_with(&mut Server::default().says(500, &[], ""), &mut keep).unwrap();
    assert_eq!(kept, None);
    let mut keep = |listing: &Listing| {
        kept = listing.session.id.clone();
        Ok(())
    };
    let lost = Server::default().says(404, &[], "");
    let agreed = json!({"jsonrpc": "2.0", "id": "@id", "result": {"protocolVersion": "2025-06-18"}});
    let headers = [("content-type", "application/json"), ("mcp-session-id", "s2")];
    let begun = lost.says(200, &headers, &agreed.to_string()).says(202, &[], "");
    called_with(&mut result_after(begun, &json!({})), &mut keep).unwrap();
    assert_eq!(kept.as_deref(), Some("s2"));
}

#[test]
fn a_call_that_takes_too_long_is_cancelled() {
    for (error, asked) in [(HttpError::Timeout, 2), (HttpError::Broken, 1)] {
        let mut server = Server { answers: VecDeque::from([Err(error)]), ..Server::default() };
        let output = called(&mut server).unwrap();
        assert!(output.for_model.contains("The call may have been carried out"), "{}", output.for_model);
        assert_eq!(server.asked.len(), asked);
        if asked == 1 {
            continue;
        }
        let params = json!({"requestId": server.body(0)["id"], "reason": "timeout"});
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(server.body(1), cancelled);
        assert_eq!(server.header(1, "mcp-session-id"), Some("s1"));
        assert!(server.asked[1].timeout_ms <= 4_000);
    }
    // The handshake must not be cancelled.
    let mut server = Server { answers: VecDeque::from([Err(HttpError::Timeout)]), ..Server::default() };
    assert!(listed(&mut server, &settings(json!({})).unwrap()).error.is_some());
    assert_eq!(server.asked.len(), 1);
}

/// The server may have carried out a call whose answer did not arrive, so the model is told.
#[test]
fn a_call_whose_answer_is_lost_may_have_been_carried_out() {
    let stream = [("content-type", "text/event-stream")];
    let progress = r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}"#;
    let ended = Server::default().says(200, &stream, &format!("{progress}\n\n"));
    let html = [("content-type", "text/html")];
    let gateways = [502, 504, 524].map(|status| Server::default().says(status, &html, "<h1>Gateway</h1>"));
    for (mut server, told) in
        [ended].into_iter().chain(gateways).zip(["in full", "HTTP 502", "HTTP 504", "HTTP 524"])
    {
        let output = called(&mut server).unwrap().for_model;
        assert!(output.contains(told) && output.contains("may have been carried out"), "{output}");
    }
    for mut server in [Server::default().says(500, &html, ""), Server::default().says(200, &html, "")] {
        let output = called(&mut server).unwrap().for_model;
        assert!(!output.contains("may have been carried out"), "{output}");
    }
}

/// A server that cannot read the id of a request answers with an error without one.
#[test]
fn an_error_without_an_id_is_the_answer() {
    let json = [("content-type", "application/json")];
    let error = json!({"code": -32000, "message": "Bad Request:\nServer not initialized"});
    let null = json!({"jsonrpc": "2.0", "error": error, "id": null});
    let absent = json!({"jsonrpc": "2.0", "error": error});
    let words = "The MCP server reports an error: Bad Request: Server not initialized";
    for message in [&null, &absent] {
        let stream = format!("data: {message}\n\n{}", ": still here\n\n".repeat(40));
        for mut server in [
            Server::default().says(400, &json, &message.to_string()),
            Server::default().says(200, &[("content-type", "text/event-stream")], &stream),
        ] {
            let output = called(&mut server).unwrap();
            let item: Value = serde_json::from_slice(&output.item).unwrap();
            assert_eq!((output.for_model.as_str(), &item["error"]["code"]), (words, &json!(-32000)));
        }
    }
    // It explains a refused notification too.
    let agreed = json!({"jsonrpc": "2.0", "id": "@id", "result": {"protocolVersion": "2025-06-18"}});
    let mut server = Server::default().json(&agreed).says(400, &json, &null.to_string());
    assert_eq!(listed(&mut server, &settings(json!({})).unwrap()).error.as_deref(), Some(words));
    // An answer with the id counts first, and errors of other protocols do not count.
    let batch = json!([null, {"jsonrpc": "2.0", "id": "@id", "result": {}}]);
    assert_eq!(called(&mut Server::default().json(&batch)).unwrap().for_model, "(no output)");
    for other in [json!({"error": "invalid_token"}), json!({"error": {"message": "no"}})] {
        let output = called(&mut Server::default().says(401, &json, &other.to_string())).unwrap();
        assert!(output.for_model.contains("refuses access (HTTP 401)"), "{}", output.for_model);
    }
    let other = json!({"jsonrpc": "2.0", "id": 9, "error": error});
    let output = called(&mut Server::default().says(400, &json, &other.to_string())).unwrap();
    assert!(output.for_model.contains("HTTP 400"), "{}", output.for_model);
}
