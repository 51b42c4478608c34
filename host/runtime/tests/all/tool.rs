//! Tools: functions, results, and every import that a tool may have.

use std::sync::{Arc, Mutex};

use cofferdam_runtime::services::{DeferredTools, ModelListing, RequestView};
use cofferdam_runtime::wire::{Output, ToolError};
use cofferdam_runtime::{CallErrorKind, Plugin, Services};

use crate::kit::{Net, Oracle, context, runtime, tool};

struct Models;

impl ModelListing for Models {
    fn models(&self) -> Vec<u8> {
        b"[{\"id\":\"a/b\"}]".to_vec()
    }
}

#[derive(Default)]
struct View {
    loaded: Mutex<Vec<String>>,
}

impl RequestView for View {
    fn transcript(&self) -> Vec<u8> {
        b"[1]".to_vec()
    }
}

impl DeferredTools for View {
    fn all(&self) -> Vec<u8> {
        b"[2]".to_vec()
    }

    fn load(&self, names: Vec<String>) {
        self.loaded.lock().unwrap().extend(names);
    }
}

async fn invoke(tool: &Arc<Plugin>, services: Services, function: &str, arguments: &str) -> Output {
    let called = tool.invoke(&context(), services, function, arguments.as_bytes(), b"{}").await;
    called.unwrap().unwrap()
}

#[tokio::test]
async fn a_tool_offers_functions_for_its_settings() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let functions = tool.functions(&context(), Services::default(), b"{}").await.unwrap().unwrap();
    assert_eq!(functions[0].name, "now");
    let wrong = tool.functions(&context(), Services::default(), b"wrong").await.unwrap();
    assert!(matches!(wrong, Err(ToolError::InvalidSettings(message)) if message.contains("parameters.zone")));
    let error = tool.functions(&context(), Services::default(), b"bad name").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::InvalidAnswer(_)));
}

#[tokio::test]
async fn results_and_errors_are_typed() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let output = invoke(&tool, Services::default(), "anything", "{}").await;
    assert_eq!((output.for_model.as_str(), output.cost_pico), ("2 bytes of settings", 7));
    let invalid = tool.invoke(&context(), Services::default(), "invalid", b"{}", b"{}").await.unwrap();
    assert!(matches!(invalid, Err(ToolError::InvalidArguments(_))));
    let error = tool.invoke(&context(), Services::default(), "bad item", b"{}", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::InvalidAnswer("a tool's item is not a JSON object"));
}

#[tokio::test]
async fn clocks_are_coarse_and_follow_the_request() {
    let runtime = runtime();
    let told = invoke(&tool(&runtime), Services::default(), "now", "{}").await.for_model;
    let times: Vec<u64> = told.split(' ').map(|word| word.parse().unwrap()).collect();
    assert_eq!(times[1], 1_700_000_000_120);
    assert!(times[0] >= times[1] && times[0].is_multiple_of(10), "{told}");
}

#[tokio::test]
async fn random_bytes_are_given_in_small_amounts() {
    let runtime = runtime();
    let tool = tool(&runtime);
    assert_eq!(invoke(&tool, Services::default(), "random", "{}").await.for_model, "32");
    let error = tool.invoke(&context(), Services::default(), "random flood", b"{}", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::InvalidAnswer("random.bytes gives at most 4096 bytes a call"));
}

#[tokio::test]
async fn scratch_values_last_for_one_request() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let request = Services::default();
    invoke(&tool, request.clone(), "keep", "ab").await;
    assert_eq!(invoke(&tool, request, "kept", "").await.for_model, "Some([97, 98])");
    assert_eq!(invoke(&tool, Services::default(), "kept", "").await.for_model, "None");
    let huge = "x".repeat(2 << 20);
    let full = tool.invoke(&context(), Services::default(), "keep", huge.as_bytes(), b"{}").await.unwrap();
    assert!(matches!(full, Err(ToolError::Failed(reason)) if reason.contains("full")));
}

#[tokio::test]
async fn tools_read_catalog_and_request_if_granted() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let view = Arc::new(View::default());
    let services = Services {
        catalog: Some(Arc::new(Models)),
        request: Some(Arc::clone(&view) as Arc<dyn RequestView>),
        ..Services::default()
    };
    assert_eq!(invoke(&tool, services.clone(), "models", "").await.for_model, "[{\"id\":\"a/b\"}]");
    assert_eq!(invoke(&tool, services, "transcript", "").await.for_model, "[1][2]");
    assert_eq!(*view.loaded.lock().unwrap(), ["late"]);
    assert_eq!(invoke(&tool, Services::default(), "models", "").await.for_model, "[]");
}

#[tokio::test]
async fn tools_ask_models_and_reach_granted_hosts_only() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let services = Services { ask: Some(Arc::new(Oracle)), http: Some(Arc::new(Net)), ..Services::default() };
    assert_eq!(invoke(&tool, services.clone(), "ask", "{}").await.for_model, "depth 1");
    let granted = invoke(&tool, services.clone(), "fetch", "https://api.test/").await;
    assert_eq!(granted.for_model, "204");
    let denied = tool.invoke(&context(), services, "fetch", b"https://other.test/", b"{}").await.unwrap();
    assert!(matches!(denied, Err(ToolError::Failed(reason)) if reason.contains("denied")));
}

#[tokio::test]
async fn a_flood_of_host_calls_ends_the_call() {
    let runtime = runtime();
    let tool = tool(&runtime);
    let error = tool.invoke(&context(), Services::default(), "clock flood", b"{}", b"{}").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TooManyHostCalls);
}
