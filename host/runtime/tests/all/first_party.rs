//! The server tools of `plugins/`: the real components in the sandbox, under the limits of their
//! own manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_runtime::services::{DeferredTools, HttpAccess, HttpExchange, ModelListing, Opening};
use cofferdam_runtime::wire::{HttpError, HttpRequest, HttpResponse, Output, ToolError};
use cofferdam_runtime::{CallErrorKind, Grant, OperatorGrant, Plugin, PluginSource, Runtime, Services};
use serde_json::{Value, json};

use crate::kit::{context, runtime};

/// Loads a plugin of the repository, with the host `site.test` and the import `request` granted.
fn first_party(runtime: &Runtime, name: &str) -> Arc<Plugin> {
    changed(runtime, name, |manifest| manifest)
}

/// A plugin of the project, with its manifest changed.
fn changed(runtime: &Runtime, name: &str, change: impl Fn(String) -> String) -> Arc<Plugin> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let source = PluginSource {
        name: name.into(),
        manifest: change(std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap()),
        component: std::fs::read(folder.join(format!("{name}.wasm"))).unwrap().into(),
        digest: None,
        origin: format!("{name}.toml"),
        is_built_in: false,
    };
    let grant = OperatorGrant {
        hosts: BTreeSet::from(["site.test".parse().unwrap()]),
        imports: vec!["request".to_owned()],
        ..OperatorGrant::default()
    };
    let plugins = runtime.load(vec![source], &BTreeMap::from([(name.to_owned(), grant)])).unwrap();
    Arc::clone(plugins.get(name).unwrap())
}

/// Answers every request with the same body and records the requests.
struct Site {
    content_type: &'static str,
    body: Vec<u8>,
    asked: Mutex<Vec<HttpRequest>>,
}

impl Site {
    fn with(content_type: &'static str, body: impl Into<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { content_type, body: body.into(), asked: Mutex::default() })
    }
}

impl HttpAccess for Site {
    fn send<'a>(
        &'a self,
        _: &'a str,
        _: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>> {
        Box::pin(async move {
            let url = request.url.clone();
            self.asked.lock().unwrap().push(request);
            let headers = vec![("content-type".to_owned(), self.content_type.to_owned())];
            Ok(HttpResponse { status: 200, url, headers, body: self.body.clone() })
        })
    }

    fn open<'a>(
        self: Arc<Self>,
        plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>> {
        Box::pin(async move { Ok(self.send(plugin, grant, request).await?.into()) })
    }
}

fn behind(site: &Arc<Site>) -> Services {
    Services { http: Some(Arc::clone(site) as Arc<dyn HttpAccess>), ..Services::default() }
}

async fn fetch(fetcher: &Arc<Plugin>, services: Services, settings: &str) -> Result<Output, ToolError> {
    let url = br#"{"url":"https://site.test/page"}"#;
    fetcher.invoke(&context(), services, "web_fetch", url, settings.as_bytes()).await.unwrap()
}

fn item(output: &Output) -> Value {
    serde_json::from_slice(&output.item).unwrap()
}

#[tokio::test]
async fn web_fetch_reads_pages_of_every_kind_within_its_limits() {
    let runtime = runtime();
    let fetcher = first_party(&runtime, "tool-web-fetch");
    let guests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests");
    let article = std::fs::read(format!("{guests}/tool-web-fetch/fixtures/article.html")).unwrap();
    let output = fetch(&fetcher, behind(&Site::with("text/html", article)), "{}").await.unwrap();
    assert_eq!(item(&output)["title"], "Ten facts & a half | Site");
    assert!(output.for_model.contains("# Ten facts") && !output.for_model.contains("previous instructions"));

    let paper = std::fs::read(format!("{guests}/pdf/fixtures/paper.pdf")).unwrap();
    let output = fetch(&fetcher, behind(&Site::with("application/pdf", paper)), "{}").await.unwrap();
    assert!(output.for_model.contains("Hello from a page"), "{}", output.for_model);
}

#[tokio::test]
async fn web_fetch_survives_malicious_markup() {
    let runtime = runtime();
    let fetcher = first_party(&runtime, "tool-web-fetch");
    let megabytes = |part: &str| part.repeat((8 << 20) / part.len());
    for markup in [
        megabytes("<div>"),
        megabytes("<ul><li><blockquote>"),
        megabytes("<a href=x>t"),
        megabytes("&lt;&notit;&"),
        megabytes("<p hidden><p>"),
        megabytes("<!--"),
        format!("<p {}>", megabytes("a b c=d ")),
        (0..4_000)
            .map(|tag| format!("<p{}>", (0..400).map(|name| format!(" a{tag}b{name}")).collect::<String>()))
            .collect(),
    ] {
        let start = markup.get(..12).unwrap().to_owned();
        let result = fetch(&fetcher, behind(&Site::with("text/html", markup)), "{}").await;
        assert!(result.is_ok(), "{start}: {result:?}");
    }
}

#[tokio::test]
async fn web_fetch_counts_its_uses_per_request() {
    let runtime = runtime();
    let fetcher = first_party(&runtime, "tool-web-fetch");
    let site = Site::with("text/plain", "words");
    let services = behind(&site);
    for _ in 0..2 {
        fetch(&fetcher, services.clone(), r#"{"max_uses":2}"#).await.unwrap();
    }
    let third = fetch(&fetcher, services, r#"{"max_uses":2}"#).await;
    assert!(matches!(third, Err(ToolError::Failed(message)) if message.contains("All 2 fetches")));
    assert_eq!(site.asked.lock().unwrap().len(), 2);
}

/// A PDF whose content unpacks to about 7 MiB of spaces per cycle of the LZW table. The guest
/// cannot know the size in advance: it measures Flate streams only.
fn document_packed_with_lzw(cycles: usize) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut put = |code: u32, width: u32| bits.extend((0..width).rev().map(|place| code >> place & 1 == 1));
    for cycle in 0..cycles {
        put(256, if cycle == 0 { 9 } else { 12 });
        put(u32::from(b' '), 9);
        // Each code refers to the entry that it creates, which is one space longer than the one
        // before.
        for code in 258..4_094_u32 {
            put(code, 32 - (code + 1).leading_zeros().min(23));
        }
    }
    let data: Vec<u8> = bits
        .chunks(8)
        .map(|byte| (0..8).fold(0, |sum, place| sum << 1 | u8::from(byte.get(place) == Some(&true))))
        .collect();
    let mut document = b"%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
        2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj\n\
        3 0 obj << /Type /Page /Parent 2 0 R /Contents 4 0 R >> endobj\n"
        .to_vec();
    document
        .extend(format!("4 0 obj << /Filter /LZWDecode /Length {} >>\nstream\n", data.len()).into_bytes());
    document.extend(data);
    document.extend(b"\nendstream endobj\ntrailer << /Root 1 0 R >>\n");
    document
}

#[tokio::test]
async fn a_document_that_exceeds_the_memory_ends_its_call_only() {
    let runtime = runtime();
    let fetcher = first_party(&runtime, "tool-web-fetch");
    let services = behind(&Site::with("application/pdf", document_packed_with_lzw(60)));
    let url = br#"{"url":"https://site.test/page"}"#;
    let error = fetcher.invoke(&context(), services, "web_fetch", url, b"{}").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::OutOfMemory | CallErrorKind::OutOfTime), "{error}");
    fetch(&fetcher, behind(&Site::with("text/plain", "fine")), "{}").await.unwrap();
}

#[tokio::test]
async fn http_request_passes_names_of_secrets_to_the_host() {
    let runtime = runtime();
    let tool = first_party(&runtime, "tool-http-request");
    let site = Site::with("application/json", "{\"id\":7}");
    let arguments = json!({
        "method": "POST", "url": "https://site.test/items?x=1", "body": { "a": 1 }, "secret": { "name": "site_key" }
    });
    let called = tool
        .invoke(&context(), behind(&site), "http_request", arguments.to_string().as_bytes(), b"{}")
        .await
        .unwrap();
    let output = called.unwrap();
    assert!(output.for_model.ends_with("{\"id\":7}"), "{}", output.for_model);
    assert_eq!(
        item(&output),
        json!({ "method": "POST", "url": "https://site.test/items", "http_status": 200 })
    );
    let asked = site.asked.lock().unwrap();
    assert_eq!((asked[0].injections[0].secret.as_str(), asked[0].redirects), ("site_key", 0));
}

struct Models;

impl ModelListing for Models {
    fn models(&self) -> Vec<u8> {
        br#"[{"id":"a/b","kind":"responses","endpoints":[]},{"id":"c/d","kind":"embeddings","endpoints":[]}]"#
            .to_vec()
    }
}

#[derive(Default)]
struct View(Mutex<Vec<String>>);

impl DeferredTools for View {
    fn all(&self) -> Vec<u8> {
        br#"[{"type":"function","name":"send_mail"},{"type":"function","name":"get_weather"}]"#.to_vec()
    }

    fn load(&self, names: Vec<String>) {
        self.0.lock().unwrap().extend(names);
    }
}

#[tokio::test]
async fn searches_see_only_the_catalog_and_deferred_tools() {
    let runtime = runtime();
    let view = Arc::new(View::default());
    let services = Services {
        catalog: Some(Arc::new(Models)),
        deferred: Some(Arc::clone(&view) as Arc<dyn DeferredTools>),
        ..Services::default()
    };
    let models = first_party(&runtime, "tool-search-models");
    let query = br#"{"query":"embeddings"}"#;
    let output =
        models.invoke(&context(), services.clone(), "search_models", query, b"{}").await.unwrap().unwrap();
    assert!(output.for_model.contains("c/d") && !output.for_model.contains("a/b"), "{}", output.for_model);

    let tools = first_party(&runtime, "tool-tool-search");
    let query = br#"{"query":"^get_"}"#;
    let output =
        tools.invoke(&context(), services.clone(), "tool_search", query, b"{}").await.unwrap().unwrap();
    assert_eq!(item(&output), json!({ "query": "^get_", "matches": ["get_weather"] }));
    assert_eq!(*view.0.lock().unwrap(), ["get_weather"]);
    let other = changed(&runtime, "tool-tool-search", |manifest| {
        manifest.replace("type = \"tool_search\"", "type = \"other_search\"")
    });
    let output =
        other.invoke(&context(), services.clone(), "tool_search", query, b"{}").await.unwrap().unwrap();
    assert_eq!(item(&output), json!({ "query": "^get_", "matches": [] }), "a tool of another type");
    let malformed =
        tools.invoke(&context(), services, "tool_search", br#"{"query":"(["}"#, b"{}").await.unwrap();
    assert!(matches!(malformed, Err(ToolError::InvalidArguments(_))));
}
