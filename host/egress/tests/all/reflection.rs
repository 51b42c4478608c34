//! Providers that repeat the credential in their answers.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use cofferdam_egress::{Outgoing, Reply};
use http::{Request, Response};
use http_body_util::Full;

use crate::kit::{self, Server, config, egress, origin, origin_with_credential, request};

fn repeat(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    let value = request.headers().get("authorization").map_or("nothing", |value| value.to_str().unwrap());
    let body = format!("data: {{\"key\":\"{value}\"}}\n\ndata: {}\n\n", STANDARD.encode(value));
    Response::builder().header("x-key", value).body(Full::from(body)).unwrap()
}

async fn send(server: &Server) -> Reply {
    let origin = origin_with_credential(&server.url());
    let credential = kit::credential();
    let outgoing = Outgoing { credential: Some(&credential), ..request(&origin) };
    egress(&config()).send(outgoing).await.unwrap()
}

#[tokio::test]
async fn credential_in_a_successful_answer_is_replaced() {
    let server = Server::start(repeat).await;
    let reply = send(&server).await;
    assert_eq!(reply.headers["x-key"], "Bearer [secret]");
    let body = String::from_utf8(reply.body.collect(4096).await.unwrap().to_vec()).unwrap();
    assert!(body.starts_with("data: {\"key\":\"Bearer [secret]\"}\n\ndata: "), "{body}");
    assert_eq!(body.matches("[secret]").count(), 2, "{body}");
}

#[tokio::test]
async fn chunk_never_ends_inside_the_credential() {
    use tokio::io::AsyncWriteExt;
    let server = Server::script(|mut stream| async move {
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\nbad key sk-very-").await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(b"secret").await.unwrap();
    })
    .await;
    let mut body = send(&server).await.body;
    let mut whole = Vec::new();
    while let Some(piece) = body.chunk().await.unwrap() {
        assert!(!piece.ends_with(b"sk-very-"));
        whole.extend_from_slice(&piece);
    }
    assert_eq!(whole, b"bad key [secret]");
}

#[tokio::test]
async fn answer_to_a_request_without_credential_is_not_searched() {
    let server = Server::start(repeat).await;
    let origin = origin(&server.url());
    let reply = egress(&config()).send(request(&origin)).await.unwrap();
    assert_eq!(reply.headers["x-key"], "nothing");
}
