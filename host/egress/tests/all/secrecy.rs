//! Secrets do not appear in errors and debug output.

use cofferdam_egress::{Error, Outgoing};
use http::{HeaderName, HeaderValue};

use crate::kit::{self, Server, config, egress, ok, origin_with_credential, request, resolving};

#[tokio::test]
async fn errors_contain_neither_secret_nor_host() {
    let config = resolving("internal-name.test", &["169.254.169.254"]);
    let origin = origin_with_credential("https://internal-name.test/v1");
    let credential = kit::credential();
    let outgoing = Outgoing { path: "hidden", credential: Some(&credential), ..request(&origin) };
    let error = egress(&config).send(outgoing).await.unwrap_err();
    let text = format!("{error} {error:?}");
    for content in ["very-secret", "internal-name", "hidden", "169.254"] {
        assert!(!text.contains(content), "{text}");
    }
}

#[tokio::test]
async fn request_debug_hides_its_secret() {
    let origin = origin_with_credential("https://api.test/v1");
    let credential = kit::credential();
    let outgoing = Outgoing { credential: Some(&credential), ..request(&origin) };
    assert!(!format!("{outgoing:?}").contains("very-secret"));
}

#[tokio::test]
async fn guest_cannot_add_a_second_credential() {
    let server = Server::start(ok).await;
    let origin = origin_with_credential(&server.url());
    let credential = kit::credential();
    for name in ["authorization", "x-api-key"] {
        let own = (HeaderName::from_static(name), HeaderValue::from_static("guest"));
        let outgoing = Outgoing { headers: vec![own], credential: Some(&credential), ..request(&origin) };
        let error = egress(&config()).send(outgoing).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{name}");
    }
    assert_eq!(server.connections(), 0);
}
