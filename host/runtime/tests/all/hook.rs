//! Hooks: their verdicts and their capabilities.

use std::sync::Arc;

use cofferdam_runtime::wire::{Action, ErrorKind};
use cofferdam_runtime::{CallErrorKind, Services};

use crate::kit::{Net, Oracle, Shop, context, hook, runtime};

fn services() -> Services {
    Services {
        ask: Some(Arc::new(Oracle)),
        http: Some(Arc::new(Net)),
        tools: Some(Arc::new(Shop)),
        ..Services::default()
    }
}

async fn verdict(settings: &str, services: Services) -> Result<Action, String> {
    let runtime = runtime();
    let hook = hook(&runtime);
    let answer = hook.on_request(&context(), services, b"{}", settings.as_bytes()).await.unwrap();
    answer.map_err(|failure| failure.message)
}

fn text(action: Action) -> String {
    let Action::Replace(json) = action else { panic!("a replacement") };
    String::from_utf8(json).unwrap()
}

#[tokio::test]
async fn hooks_pass_replace_and_reject() {
    assert!(matches!(verdict("", services()).await, Ok(Action::Pass)));
    assert_eq!(text(verdict("replace", services()).await.unwrap()), "{\"replaced\":true}");
    let rejected = verdict("reject", services()).await.unwrap();
    assert!(matches!(rejected, Action::Reject(failure) if failure.kind == ErrorKind::ContentPolicyViolation));
}

#[tokio::test]
async fn replacements_are_objects() {
    let runtime = runtime();
    let hook = hook(&runtime);
    let error = hook.on_request(&context(), services(), b"{}", b"replace badly").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)));
    let error = hook.on_response(&context(), services(), b"{}", b"[]", b"replace").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)));
    let fine = hook.on_response(&context(), services(), b"{}", b"{}", b"replace").await.unwrap().unwrap();
    assert_eq!(text(fine), "{}");
}

#[tokio::test]
async fn hooks_ask_models_fetch_and_call_tools() {
    assert_eq!(text(verdict("ask", services()).await.unwrap()), "{\"text\":\"depth 1\"}");
    assert_eq!(text(verdict("fetch", services()).await.unwrap()), "{\"fetched\":1}");
    assert_eq!(text(verdict("tool", services()).await.unwrap()), "{\"depth\":1}");
}

#[tokio::test]
async fn absent_capabilities_answer_as_if_not_granted() {
    let asked = verdict("ask", Services::default()).await.unwrap();
    assert!(matches!(asked, Action::Reject(failure) if failure.kind == ErrorKind::PermissionDenied));
    assert!(verdict("fetch", Services::default()).await.unwrap_err().contains("denied"));
    assert!(verdict("tool", Services::default()).await.unwrap_err().contains("unavailable"));
}

#[tokio::test]
async fn questions_are_limited_in_number_and_depth() {
    assert_eq!(verdict("ask often", services()).await.unwrap_err(), "16 answers");
    let nested = verdict("ask", Services { depth: 1, ..services() }).await.unwrap();
    assert_eq!(text(nested), "{\"text\":\"depth 2\"}");
    let too_deep = verdict("ask", Services { depth: 2, ..services() }).await.unwrap();
    assert!(matches!(too_deep, Action::Reject(failure) if failure.kind == ErrorKind::PreconditionFailed));
    let tool = verdict("tool", Services { depth: 2, ..services() }).await;
    assert!(tool.unwrap_err().contains("exhausted"));
}

#[tokio::test]
async fn hooks_get_a_pseudonym_of_the_workspace() {
    let pseudonym = verdict("who", services()).await.unwrap_err();
    assert_eq!(pseudonym.len(), 32);
    assert!(!pseudonym.contains("workspace"));
}
