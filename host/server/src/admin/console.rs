//! The files of the console. They are part of the program: no build step, nothing is loaded from
//! anywhere else.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};

use crate::reply::answer::ResponseBody;

/// What the pages may do: load their own scripts, styles, icon and data, and nothing else. Texts
/// cannot become markup (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

struct ConsoleFile {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal, $kind:literal, $file:literal;)*) => {
        &[$(ConsoleFile {
            path: $path,
            kind: $kind,
            text: include_str!(concat!("../../console/", $file)),
        }),*]
    };
}

const FILES: &[ConsoleFile] = files![
    "/", "text/html; charset=utf-8", "index.html";
    "/console/style.css", "text/css; charset=utf-8", "style.css";
    "/console/icon.svg", "image/svg+xml", "icon.svg";
    "/console/api.js", "text/javascript; charset=utf-8", "api.js";
    "/console/chart.js", "text/javascript; charset=utf-8", "chart.js";
    "/console/format.js", "text/javascript; charset=utf-8", "format.js";
    "/console/h.js", "text/javascript; charset=utf-8", "h.js";
    "/console/live.js", "text/javascript; charset=utf-8", "live.js";
    "/console/main.js", "text/javascript; charset=utf-8", "main.js";
    "/console/parts.js", "text/javascript; charset=utf-8", "parts.js";
    "/console/timeline.js", "text/javascript; charset=utf-8", "timeline.js";
    "/console/pages/keys.js", "text/javascript; charset=utf-8", "pages/keys.js";
    "/console/pages/models.js", "text/javascript; charset=utf-8", "pages/models.js";
    "/console/pages/overview.js", "text/javascript; charset=utf-8", "pages/overview.js";
    "/console/pages/playground.js", "text/javascript; charset=utf-8", "pages/playground.js";
    "/console/pages/plugins.js", "text/javascript; charset=utf-8", "pages/plugins.js";
    "/console/pages/requests.js", "text/javascript; charset=utf-8", "pages/requests.js";
    "/console/pages/signin.js", "text/javascript; charset=utf-8", "pages/signin.js";
    "/console/pages/spend.js", "text/javascript; charset=utf-8", "pages/spend.js";
    "/console/pages/vault.js", "text/javascript; charset=utf-8", "pages/vault.js";
];

pub(super) fn has(path: &str) -> bool {
    path == "/" || path.starts_with("/console/")
}

/// Answers with a file. The name of the host was checked already.
pub(super) fn answer(method: &Method, path: &str) -> Response<ResponseBody> {
    let file = FILES.iter().find(|file| file.path == path);
    let (status, kind, text) = match file {
        _ if method != Method::GET && method != Method::HEAD => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "Method not allowed\n")
        }
        None => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "Not found\n"),
        Some(file) => (StatusCode::OK, file.kind, file.text),
    };
    let text = if method == Method::HEAD { "" } else { text };
    let mut response = Response::new(ResponseBody::whole(text.as_bytes().into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        // The next start may be another version.
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::FILES;

    /// The files below a folder, as paths of requests.
    fn files(folder: &Path, path: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                files(&entry.path(), &path, found);
            } else {
                found.insert(path.replace("/console/index.html", "/"));
            }
        }
    }

    #[test]
    fn each_file_of_the_folder_is_served() {
        let mut found = BTreeSet::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("console"), "/console", &mut found);
        assert_eq!(FILES.iter().map(|file| file.path.to_owned()).collect::<BTreeSet<_>>(), found);
    }
}
