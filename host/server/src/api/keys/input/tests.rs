use proptest::prelude::*;

use super::*;

fn path<T: fmt::Debug>(parsed: Result<T, FieldError>) -> String {
    parsed.unwrap_err().path.into_owned()
}

#[test]
fn create_accepts_the_fields_of_openrouters_clients() {
    let body =
        br#"{"name": "A key", "limit": 12.50, "limit_reset": "monthly", "include_byok_in_limit": false,
        "expires_at": "2027-12-31T23:59:59Z", "member_id": null}"#;
    let create = CreateKeyBody::parse(body).unwrap();
    assert_eq!(create.name.as_str(), "A key");
    assert_eq!(create.limits, SpendLimits::default().with(SpendWindow::Month, Some(12_500_000_000_000)));
    assert_eq!(create.expires_at_ms, Some(1_830_297_599_000));
    let plain = CreateKeyBody::parse(br#"{"name":"A key","limit":null,"limit_reset":null}"#).unwrap();
    assert_eq!((plain.limits, plain.expires_at_ms), (SpendLimits::default(), None));
    let total = CreateKeyBody::parse(br#"{"name":"A key","limit":0.000000000001}"#).unwrap();
    assert_eq!(total.limits.total_pico, Some(1));
}

#[test]
fn a_date_is_given_up_to_the_last_one() {
    let of = |date: &str| CreateKeyBody::parse(format!(r#"{{"name":"a","expires_at":"{date}"}}"#).as_bytes());
    assert_eq!(of("9999-12-30T22:00:00Z").unwrap().expires_at_ms, Some(253_402_207_200_000));
    assert!(of("9999-12-31T23:59:59Z").unwrap_err().reason.contains("at most 9999-12-30T22:00:00Z"));
}

#[test]
fn other_bodies_are_refused_with_the_path_of_the_mistake() {
    for (body, expected) in [
        ("", "body"),
        ("null", "body"),
        ("[]", "body"),
        ("\"name\"", "body"),
        ("{\"name\":\"a\"} x", "body"),
        ("{\"name\":\"a\",\"name\":\"a\"}", "body"),
        ("{\"name\":\"a\",\"limit\":1,\"l\\u0069mit\":2}", "body"),
        ("{}", "name"),
        ("{\"name\":null}", "name"),
        ("{\"name\":7}", "name"),
        ("{\"name\":\"\"}", "name"),
        ("{\"name\":\" a\"}", "name"),
        ("{\"name\":\"a\\nb\"}", "name"),
        ("{\"name\":\"67e55044-10b1-426f-9247-bb680e5fe0c8\"}", "name"),
        ("{\"name\":\"a\",\"limit\":\"5\"}", "limit"),
        ("{\"name\":\"a\",\"limit\":-1}", "limit"),
        ("{\"name\":\"a\",\"limit\":true}", "limit"),
        ("{\"name\":\"a\",\"limit\":[1]}", "limit"),
        ("{\"name\":\"a\",\"limit\":1e-13}", "limit"),
        ("{\"name\":\"a\",\"limit\":1e300}", "limit"),
        ("{\"name\":\"a\",\"limit\":1,\"limit_reset\":\"yearly\"}", "limit_reset"),
        ("{\"name\":\"a\",\"limit\":1,\"limit_reset\":1}", "limit_reset"),
        ("{\"name\":\"a\",\"limit_reset\":\"daily\"}", "limit_reset"),
        ("{\"name\":\"a\",\"include_byok_in_limit\":true}", "include_byok_in_limit"),
        ("{\"name\":\"a\",\"include_byok_in_limit\":1}", "include_byok_in_limit"),
        ("{\"name\":\"a\",\"expires_at\":\"tomorrow\"}", "expires_at"),
        ("{\"name\":\"a\",\"expires_at\":1830297599}", "expires_at"),
        ("{\"name\":\"a\",\"expires_at\":\"1969-01-01T00:00:00Z\"}", "expires_at"),
        ("{\"name\":\"a\",\"member_id\":\"x\"}", "member_id"),
        ("{\"name\":\"a\",\"intern_id\":\"x\"}", "intern_id"),
        ("{\"name\":\"a\",\"limt\":5}", "limt"),
        ("{\"name\":\"a\",\"kind\":\"provisioning\"}", "kind"),
        ("{\"name\":\"a\",\"disabled\":true}", "disabled"),
        ("{\"name\":\"a\",\"a secret\":5}", "body"),
        ("{\"name\":\"a\",\"\":5}", "body"),
    ] {
        assert_eq!(path(CreateKeyBody::parse(body.as_bytes())), expected, "{body}");
    }
    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let both = format!("{{\"name\":\"a\",\"member_id\":\"{id}\",\"intern_id\":\"{id}\"}}");
    assert_eq!(path(CreateKeyBody::parse(both.as_bytes())), "intern_id");
    let many: Vec<String> = (0..40).map(|number| format!("\"m{number}\":1")).collect();
    assert_eq!(path(CreateKeyBody::parse(format!("{{{}}}", many.join(",")).as_bytes())), "body");
    let deep = format!("{{\"name\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    assert_eq!(path(CreateKeyBody::parse(deep.as_bytes())), "name");
    assert_eq!(path(CreateKeyBody::parse(b"{\"name\":\"\xff\"}")), "body");
}

#[test]
fn patch_changes_only_the_given_fields() {
    let patch = Patch::parse(br#"{"name":"b","disabled":true}"#).unwrap();
    assert_eq!((patch.name.unwrap().as_str().to_owned(), patch.disabled), ("b".to_owned(), Some(true)));
    assert_eq!((patch.limit, patch.reset), (None, None));
    let patch = Patch::parse(br#"{"limit":null,"limit_reset":null}"#).unwrap();
    assert_eq!((patch.limit, patch.reset), (Some(None), Some(SpendWindow::Total)));
    assert!(Patch::parse(b"{}").is_ok());
    for (body, expected) in [
        ("{\"name\":null}", "name"),
        ("{\"disabled\":null}", "disabled"),
        ("{\"disabled\":\"true\"}", "disabled"),
        ("{\"limit\":\"1\"}", "limit"),
        ("{\"expires_at\":\"2027-12-31T23:59:59Z\"}", "expires_at"),
        ("{\"member_id\":null}", "member_id"),
        ("{\"workspace_id\":null}", "workspace_id"),
    ] {
        assert_eq!(path(Patch::parse(body.as_bytes())), expected, "{body}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_and_never_repeated(body: Vec<u8>) {
        for flaw in [CreateKeyBody::parse(&body).err(), Patch::parse(&body).err()].into_iter().flatten() {
            prop_assert!(flaw.path.len() <= MEMBER_NAME_BYTES_MAX);
        }
    }

    #[test]
    fn any_members_are_read_or_refused(
        name in "\\PC{0,70}",
        limit in "-?[0-9]{1,20}(\\.[0-9]{1,14})?(e[+-]?[0-9]{1,3})?|null|\"x\"",
        reset in "null|\"(daily|weekly|monthly|x)\"",
    ) {
        let name = serde_json::to_string(&name).unwrap();
        let body = format!("{{\"name\":{name},\"limit\":{limit},\"limit_reset\":{reset}}}");
        if let Ok(create) = CreateKeyBody::parse(body.as_bytes()) {
            prop_assert_eq!(create.limits.is_empty(), limit == "null");
        }
    }
}
