use cofferdam_engine::Refusal;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Response};
use serde_json::{Value, json};

use super::answer::ResponseBody;
use crate::fault::{Fault, FieldError};

fn body(response: Response<ResponseBody>) -> Value {
    serde_json::from_slice(response.body().bytes().unwrap()).unwrap()
}

#[test]
fn every_fault_has_its_status_and_message() {
    let table = [
        (Fault::MissingKey, 401, "Missing Authentication header"),
        (Fault::InvalidKey, 401, "Invalid or missing API key"),
        (Fault::ManagementOnly, 403, "Only management keys can perform this operation"),
        (Fault::NotFound, 404, "Not found"),
        (Fault::WrongMethod(&[Method::GET]), 405, "Method not allowed"),
        (Fault::BodyTimedOut, 408, "Request body timed out"),
        (Fault::BodyTooLarge, 413, "Request payload too large"),
        (Fault::NoScope, 403, "Vault scope is unavailable"),
        (Fault::InvalidVaultRequest(FieldError::at("name", "is no name")), 400, "Invalid vault request"),
        (Fault::VaultTooLate, 408, "Vault request timed out"),
        (Fault::TooManyVaultRequests { wait_s: 3 }, 429, "Too many vault requests"),
        (Fault::VaultDamaged, 502, "Invalid vault response"),
        (Fault::VaultFailed, 502, "Vault request failed"),
        (Fault::VaultUnavailable, 503, "Vault service is unavailable"),
        (Fault::VaultWritesDisabled, 503, "Vault writes are not enabled"),
        (Fault::VaultTimedOut, 504, "Vault request timed out"),
        (Fault::Internal, 500, "Internal Server Error"),
    ];
    for (fault, status, message) in table {
        let response = fault.into_response(None);
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        let body = body(response);
        assert_eq!(body["error"]["code"], status);
        assert_eq!(body["error"]["message"], message);
        assert!(body["error"]["metadata"]["error_type"].is_string());
        assert_eq!(body["error"]["metadata"]["refused_by"], "host");
        assert!(body["user_id"].is_null());
    }
}

#[test]
fn wrong_method_lists_the_allowed_methods() {
    let response = Fault::WrongMethod(&[Method::GET, Method::HEAD]).into_response(None);
    assert_eq!(response.headers()[ALLOW], "GET, HEAD");
}

#[test]
fn too_many_requests_has_a_retry_after_header() {
    let response = Fault::TooManyVaultRequests { wait_s: 7 }.into_response(None);
    assert_eq!(response.headers()[RETRY_AFTER], "7");
}

#[test]
fn field_error_names_the_path_and_the_reason() {
    let fault = Fault::InvalidVaultRequest(FieldError::in_list("hosts", 2, "must be an exact host name"));
    let metadata = json!({
        "error_type": "invalid_request",
        "refused_by": "host",
        "path": "hosts[2]",
        "reason": "must be an exact host name",
    });
    assert_eq!(body(fault.into_response(None))["error"]["metadata"], metadata);
}

#[test]
fn refusal_of_the_engine_keeps_its_message_and_metadata() {
    let mut refusal = Refusal::invalid("input: expected a text");
    refusal.metadata = Box::new(json!({"refused_by": "provider", "provider_name": "p"}));
    refusal.retry_after_s = Some(7);
    refusal.service_metadata = Some(Box::new(json!({"attempt": 1})));
    let fault = Fault::Refused { refusal: Box::new(refusal), field: Some("service_metadata") };
    let response = fault.into_response(Some("m".to_owned()));
    assert_eq!(response.headers()[RETRY_AFTER], "7");
    assert_eq!(
        body(response),
        json!({
            "error": {
                "code": 400,
                "message": "input: expected a text",
                "metadata": {
                    "error_type": "invalid_request",
                    "refused_by": "provider",
                    "provider_name": "p",
                },
            },
            "service_metadata": {"attempt": 1},
            "user_id": "m",
        })
    );
}
