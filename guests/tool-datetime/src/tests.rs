use cofferdam_guest_kit::bindings::tools::Guest;
use cofferdam_guest_kit::bindings::types::CallContext;
use serde_json::{Value, json};

use super::{DateTime, Fields, Output, SingleFunction, ToolError, render};

/// 2026-07-01 22:30:00.120 UTC, a Wednesday.
const SUMMER_MS: u64 = 1_782_945_000_120;

fn item(output: &Output) -> Value {
    serde_json::from_slice(&output.item).unwrap()
}

fn told(now_ms: u64, arguments: &str, settings: &str) -> Result<Output, ToolError> {
    let default = DateTime::settings(&Fields::settings(settings.as_bytes())?)?;
    render(now_ms, &Fields::arguments(arguments.as_bytes())?, &default)
}

#[test]
fn the_time_is_in_the_requested_zone() {
    let cases = [
        ("{}", "{}", "2026-07-01T22:30:00.120+00:00", "UTC"),
        ("", "", "2026-07-01T22:30:00.120+00:00", "UTC"),
        (r#"{"timezone":"Europe/Berlin"}"#, "{}", "2026-07-02T00:30:00.120+02:00", "Europe/Berlin"),
        (r#"{"timezone":"america/new_york"}"#, "{}", "2026-07-01T18:30:00.120-04:00", "America/New_York"),
        (r#"{"timezone":"Asia/Kolkata"}"#, "{}", "2026-07-02T04:00:00.120+05:30", "Asia/Kolkata"),
        ("{}", r#"{"timezone":"Asia/Tokyo"}"#, "2026-07-02T07:30:00.120+09:00", "Asia/Tokyo"),
        (r#"{"timezone":null}"#, r#"{"timezone":null}"#, "2026-07-01T22:30:00.120+00:00", "UTC"),
        (
            r#"{"timezone":" "}"#,
            r#"{"timezone":"Asia/Tokyo"}"#,
            "2026-07-02T07:30:00.120+09:00",
            "Asia/Tokyo",
        ),
        (r#"{"timezone":"UTC"}"#, r#"{"timezone":"Asia/Tokyo"}"#, "2026-07-01T22:30:00.120+00:00", "UTC"),
    ];
    for (arguments, settings, datetime, timezone) in cases {
        let output = told(SUMMER_MS, arguments, settings).unwrap();
        assert_eq!(
            item(&output),
            json!({ "datetime": datetime, "timezone": timezone }),
            "{arguments} {settings}"
        );
        assert!(output.for_model.contains(datetime) && output.for_model.contains("day"));
    }
}

#[test]
fn summer_time_ends_and_small_times_have_milliseconds() {
    let winter = told(1_767_225_600_000, r#"{"timezone":"Europe/Berlin"}"#, "{}").unwrap();
    assert_eq!(item(&winter)["datetime"], "2026-01-01T01:00:00.000+01:00");
    let future = told(4_102_444_800_000, r#"{"timezone":"America/New_York"}"#, "{}").unwrap();
    assert_eq!(item(&future)["datetime"], "2099-12-31T19:00:00.000-05:00");
}

#[test]
fn wrong_arguments_give_a_message_for_the_model() {
    for arguments in
        [r#"{"timezone":"Mars/Olympus"}"#, r#"{"timezone":7}"#, "nonsense", r#"{"timezone":"../UTC"}"#]
    {
        assert!(
            matches!(told(SUMMER_MS, arguments, "{}"), Err(ToolError::InvalidArguments(_))),
            "{arguments}"
        );
    }
    assert!(matches!(told(u64::MAX, "{}", "{}"), Err(ToolError::InvalidArguments(_))));
}

#[test]
fn wrong_settings_refuse_the_request() {
    for settings in [r#"{"timezone":"Mars/Olympus"}"#, r#"{"timezone":7}"#, "nonsense"] {
        assert!(matches!(told(SUMMER_MS, "{}", settings), Err(ToolError::InvalidSettings(_))), "{settings}");
    }
}

#[test]
fn offers_one_function_with_the_same_bytes_each_time() {
    let offer = |settings: &str| {
        let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 1 };
        let functions = DateTime::functions(settings.as_bytes().to_vec(), context).unwrap();
        let [function] = functions.as_slice() else { panic!() };
        (function.name.clone(), String::from_utf8(function.parameters.clone()).unwrap())
    };
    assert_eq!(offer("{}"), offer("null"));
    let (name, parameters) = offer(r#"{"timezone":"Asia/Tokyo"}"#);
    assert!(name == "datetime" && parameters.contains("Asia/Tokyo when left out"), "{parameters}");
}
