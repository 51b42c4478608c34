//! The open paths of the admin listener: `/healthz`, `/readyz` and `/metrics`. They have no
//! authentication, so they reveal nothing about tenants, keys or content.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::exposition;
use crate::app::App;
use crate::reply::answer::ResponseBody;

pub(super) fn answer(app: &App, method: &Method, path: &str) -> Response<ResponseBody> {
    let page: fn(&App) -> AdminPage = match path {
        "/healthz" => {
            |_| AdminPage::new(StatusCode::OK, "application/json", "{\"status\":\"ok\"}".to_owned())
        }
        "/readyz" => ready,
        "/metrics" => metrics,
        _ => |_| AdminPage::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "Not found\n".to_owned()),
    };
    if method != Method::GET && method != Method::HEAD {
        let mut response = Response::new(ResponseBody::default());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let AdminPage { status, kind, text } = page(app);
    let mut response = Response::new(ResponseBody::whole(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

struct AdminPage {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl AdminPage {
    fn new(status: StatusCode, kind: &'static str, text: String) -> Self {
        Self { status, kind, text }
    }
}

/// `/readyz`: 200 when the host can serve requests. The body says which part is not ready.
fn ready(app: &App) -> AdminPage {
    let readiness = app.readiness();
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = json!({
        "ready": readiness.is_ready(),
        "plugins_compiled": readiness.plugins_compiled,
        "store_writable": readiness.store_writable,
        "draining": readiness.draining,
    });
    AdminPage::new(status, "application/json", text.to_string())
}

fn metrics(app: &App) -> AdminPage {
    AdminPage::new(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", exposition::page(app))
}
