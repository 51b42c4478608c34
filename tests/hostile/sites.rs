//! Servers that tools ask: MCP servers and pages that break HTTP itself, over TLS.

use super::servers::{Act, endless, play, read_request, send};
use crate::kit::beside::Calm;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, model, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::site::Authority;
use crate::kit::upstream::Upstream;
use crate::tools::script::{answer, call, calls};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The name of the server.
const HOST: &str = "api.test";
/// What a tool asks for that the server breaks: pages, and calls of the MCP server's tool.
const BROKEN: &[&str] = &["get /page", "\"tools/call\""];

/// A server of pages and of MCP that answers requests with [`BROKEN`] by playing acts.
struct Site {
    port: u16,
    acts: Arc<Mutex<Vec<Act>>>,
    task: JoinHandle<()>,
}

impl Site {
    async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acts: Arc<Mutex<Vec<Act>>> = Arc::default();
        let task = tokio::spawn(serve(listener, authority.acceptor(&[HOST]), Arc::clone(&acts)));
        Self { port, acts, task }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{HOST}:{}{path}", self.port)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, acts: Arc<Mutex<Vec<Act>>>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        connections.spawn(converse(socket, acceptor.clone(), Arc::clone(&acts)));
    }
}

async fn converse(socket: TcpStream, acceptor: TlsAcceptor, acts: Arc<Mutex<Vec<Act>>>) {
    let Ok(mut stream) = acceptor.accept(socket).await else { return };
    while let Some(request) = read_request(&mut stream).await {
        let is_broken = BROKEN.iter().any(|part| request.contains(part));
        let acts = if is_broken { acts.lock().unwrap().clone() } else { vec![send(&proper(&request))] };
        play(&mut stream, &acts).await;
        if is_broken {
            return;
        }
    }
}

/// The answer of a well-behaved MCP server.
fn proper(request: &str) -> String {
    let message: Value =
        request.split_once("\r\n\r\n").map_or("", |(_, body)| body).parse().unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}})
        }
        Some("tools/list") => json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
        _ => return "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const JSON: &str = "content-type: application/json\r\n";
const CHUNKED: &str = "content-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n";

fn deeds() -> Vec<(&'static str, Vec<Act>)> {
    let long = "x".repeat(16_000);
    vec![
        ("it closes the connection", vec![]),
        ("another protocol", vec![send("SSH-2.0-poison\r\n")]),
        ("a head that is cut", vec![send(OK), send("content-ty")]),
        ("a chunk that is cut", vec![send(OK), send(CHUNKED), send("ffff\r\n<p>poison")]),
        ("a last chunk that is missing", vec![send(OK), send(CHUNKED), send("9\r\n<p>poison\r\n")]),
        ("a length of a chunk that is none", vec![send(OK), send(CHUNKED), send("poison\r\n")]),
        (
            "a chunk of 2^64 bytes",
            vec![send(OK), send(CHUNKED), send("ffffffffffffffffff\r\n"), endless(&long)],
        ),
        ("a length beyond what is sent", vec![send(OK), send(JSON), send("content-length: 5000\r\n\r\n{}")]),
        ("two lengths", vec![send(OK), send("content-length: 2\r\ncontent-length: 20\r\n\r\n{}")]),
        ("a length that is no number", vec![send(OK), send("content-length: +2\r\n\r\n{}")]),
        ("a line that is no header", vec![send(OK), send("poison\r\n\r\n{}")]),
        ("headers without end", vec![send(OK), endless("x-filler: poison\r\n")]),
        ("one header without end", vec![send(OK), send("x-filler: "), endless(&long)]),
        ("answers in advance without end", vec![endless("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")]),
        ("extensions of a chunk without end", vec![send(OK), send(CHUNKED), send("5;"), endless(&long)]),
        (
            "trailers without end",
            vec![send(OK), send(CHUNKED), send("0\r\n"), endless("x-trailer: poison\r\n")],
        ),
        ("a body without end", vec![send(OK), send("content-type: text/html\r\n\r\n"), endless(&long)]),
        ("bytes that are no HTTP, without end", vec![endless("\0\u{1}garbage poison\r\n")]),
    ]
}

/// A host whose tools may ask the server.
fn host(site: &Site, authority: &Authority, chat: &Upstream, calm: &Calm) -> Host {
    let setup = Setup::new();
    std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
    let egress = format!(
        "[egress]\nports = [{}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
         resolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n",
        site.port
    );
    let granted = |plugin: &str| format!("[plugins.{plugin}]\nhosts = [\"{HOST}\"]\n");
    let models = provider("c", "openai-chat", &chat.base) + &model(MODEL, "responses", &["c"]);
    let grants = granted("tool-mcp") + &granted("tool-web-fetch");
    setup.config(&egress).config(&models).config(&grants).config(&calm.config()).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_breaks_http_fails_the_call_of_the_tool_that_asked_it() {
    let authority = Authority::new();
    let (site, chat, calm) = (Site::start(&authority).await, Upstream::start().await, Calm::start().await);
    let host = host(&site, &authority, &chat, &calm);
    let (client, watch) = (Client::new(&host), calm.watch(&host).await);
    let mcp = json!({"type": "mcp", "server_label": "calc", "server_url": site.url("/mcp"), "require_approval": "never"});
    let page = json!({"url": site.url("/page")}).to_string();
    let tools =
        [(mcp, "calc__add", "{}"), (json!({"type": "service:web_fetch"}), "web_fetch", page.as_str())];
    for (what, acts) in deeds() {
        *site.acts.lock().unwrap() = acts;
        for (tool, function, arguments) in &tools {
            chat.reply(calls(false, "", &[call("c1", function, arguments)]));
            chat.reply(answer(false, "Sorry."));
            let request = json!({"model": MODEL, "input": "Go.", "tools": [tool]});
            let asked = format!("{function}, {what}");
            let answer = watch.beside(&asked, client.post("/responses", &request)).await;
            assert_eq!((answer.status, answer.output_text()), (200, "Sorry."), "{asked}: {}", answer.text);
            let items = answer.body["output"].as_array().unwrap();
            let is_call = |item: &&Value| item["type"] != "message" && item["type"] != "mcp_list_tools";
            let item = items.iter().find(is_call).unwrap_or_else(|| panic!("{asked}: {}", answer.text));
            assert_eq!(item["status"], "failed", "{asked}: {}", answer.text);
            assert!(!answer.text.contains("poison"), "{asked}: {}", answer.text);
            println!("{asked}: {}", item["error"]);
        }
    }
}
