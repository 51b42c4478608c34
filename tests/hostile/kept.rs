//! Providers that close a connection which the host keeps for further requests.

use super::servers::{play, read_request, send};
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, STEADY, single};
use crate::kit::host::Setup;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

/// Answers each request, and closes its connections when it is told to.
async fn serve(listener: TcpListener, close: Arc<Notify>, open: Arc<Mutex<JoinSet<()>>>) {
    let choice = json!({"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"});
    let events = format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [choice]}));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let acts = [send(&format!("{head}content-length: {}\r\n\r\n{events}", events.len()))];
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (acts, close) = (acts.clone(), Arc::clone(&close));
        open.lock().await.spawn(async move {
            read_request(&mut socket).await.unwrap();
            play(&mut socket, &acts).await;
            close.notified().await;
        });
    }
}

/// The two listeners have threads of their own, so each request meets a connection that another thread has used.
#[tokio::test]
async fn a_kept_connection_that_the_provider_has_closed_gets_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let (close, open) = (Arc::new(Notify::new()), Arc::default());
    let server = tokio::spawn(serve(listener, Arc::clone(&close), Arc::clone(&open)));
    let host = Setup::new().config(&format!("{STEADY}{}", single("openai-chat", &base))).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let request = json!({"model": MODEL, "input": "x", "stream": true});
    for _ in 0..4 {
        for by_operator in [false, true] {
            let answer = match by_operator {
                false => client.post("/responses", &request).await,
                true => admin.change("playground", &json!({"as": "default", "request": request})).await,
            };
            assert!(answer.text.contains("response.completed"), "{} {}", answer.status, answer.text);
            close.notify_one();
            open.lock().await.join_next().await.unwrap().unwrap();
        }
    }
    server.abort();
}
