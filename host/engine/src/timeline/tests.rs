use super::journal::Entry;
use super::*;
use crate::cost::Amount;
use cofferdam_store::{KeyId, UsageKind, WorkspaceId};
use serde_json::{Value, json};
use std::sync::LazyLock;

fn beginning(id: &str) -> RequestBeginning<'_> {
    static KEY: LazyLock<KeyId> = LazyLock::new(|| "abcdefghijkl".parse().unwrap());
    RequestBeginning {
        request_id: id,
        log_id: None,
        started_ms: 1_700_000_000_000,
        workspace: "3f2a0000-0000-4000-8000-000000000001".parse::<WorkspaceId>().unwrap(),
        key: &KEY,
        intern: None,
        endpoint: UsageKind::Responses,
        request_bytes: 70,
    }
}

fn recorder(keeps: usize) -> Arc<RequestRecorder> {
    let recorder = Arc::new(RequestRecorder::default());
    recorder.keep(keeps);
    recorder
}

fn begin(recorder: &Arc<RequestRecorder>, id: &str) -> RequestGuard {
    recorder.begin(|| beginning(id), None, false)
}

fn ids(requests: &[RecordedRequest]) -> Vec<&str> {
    requests.iter().map(|request| request.request_id.as_str()).collect()
}

fn row() -> UsageRow {
    let RequestBeginning { workspace, key, .. } = beginning("a");
    UsageRow {
        model: "meta/llama".to_owned(),
        provider: "ollama".to_owned(),
        attempts: 1,
        input_tokens: 7,
        cost_pico: 1_500_000,
        ..UsageRow::begun("a".to_owned(), workspace, *key, UsageKind::Responses, true)
    }
}

/// The document without its times, which differ from run to run.
fn timeless(timeline: &RecordedTimeline) -> Value {
    let mut document = serde_json::to_value(timeline).unwrap();
    document["us"].take();
    for step in document["steps"].as_array_mut().unwrap() {
        for member in ["at_us", "us"] {
            assert!(step[member].take().is_u64(), "{step}");
        }
    }
    document
}

#[test]
fn a_finished_request_is_a_document_with_its_steps() {
    let recorder = recorder(4);
    let guard = begin(&recorder, "a");
    let timeline = guard.timeline();
    guard.asks(&"é".repeat(200), true);
    timeline.open(StepType::Attempt, &["attempt", "ollama"], &[FactName::Attempt.number(1)]);
    timeline.first_content();
    let step = timeline.begin(StepType::GuestCall, &["provider-demo", "prepare"], &[]);
    timeline.end_call(step, "ok", Duration::from_micros(540), &[]);
    let cut = timeline.begin(StepType::Exchange, &["POST", "api.test"], &[FactName::Host.name("api.test")]);
    timeline.at_once(|moment| moment.note(StepType::Release, &["key", ">", "api.test"], &[]));
    assert_eq!(recorder.one("a").unwrap().steps[2].outcome, None, "{cut:?} runs");
    assert_eq!(recorder.running()[0].outcome, "running");
    timeline.close("timeout", &[FactName::Cause.word("late_step"), FactName::Status.number(None)]);
    timeline.responded(9);
    timeline.failed(ErrorKind::Timeout);
    timeline.settled(&row(), UsageOutcome::Failed);
    drop(guard);
    let head = json!({
        "number": 1, "request_id": "a", "log_id": null, "started_at": "2023-11-14T22:13:20.000Z",
        "workspace_id": "3f2a0000-0000-4000-8000-000000000001", "key_id": "abcdefghijkl", "intern_id": null,
        "endpoint": "responses", "streamed": true, "requested_model": "é".repeat(128), "model": "meta/llama",
        "provider": "ollama", "status": null, "outcome": "failed", "error_type": "timeout", "us": null,
        "attempts": 1, "input_tokens": 7, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0,
        "cost": 0.000_001_5, "byok_cost": 0, "estimated": false, "request_bytes": 70, "response_bytes": 9, "steps_lost": 0,
    });
    let steps = json!([
            {"n": 1, "parent": null, "kind": "net", "type": "attempt", "name": "attempt ollama", "at_us": null,
             "us": null, "outcome": "timeout", "attempt": 1, "cause": "late_step"},
            {"n": 2, "parent": 1, "kind": "guest", "type": "guest_call", "name": "provider-demo prepare",
             "at_us": null, "us": null, "busy_us": 540, "outcome": "ok"},
            {"n": 3, "parent": 1, "kind": "net", "type": "exchange", "name": "POST api.test", "at_us": null,
             "us": null, "outcome": "unfinished", "host": "api.test"},
            {"n": 4, "parent": 1, "kind": "secret", "type": "release", "name": "key > api.test", "at_us": null,
             "us": null, "outcome": "ok"},
            {"n": 5, "parent": null, "kind": "host", "type": "usage", "name": "usage row", "at_us": null,
             "us": null, "outcome": "ok", "input_tokens": 7, "output_tokens": 0, "cost": 0.000_001_5},
    ]);
    let mut document = timeless(&recorder.one("a").unwrap());
    assert!(document["steps"][0].as_object_mut().unwrap().shift_remove("first_content_us").unwrap().is_u64());
    let found = document.as_object_mut().unwrap().shift_remove("steps").unwrap();
    assert_eq!((document, found), (head, steps));
    assert_eq!(recorder.recent(&RequestFilter::default())[0].cost, Amount(1_500_000));
    assert!(recorder.running().is_empty());
}

#[test]
fn the_last_requests_are_kept_and_can_be_selected() {
    let recorder = recorder(3);
    for id in ["a", "b", "c", "d"] {
        let guard = begin(&recorder, id);
        guard.asks(if id == "c" { "x/c" } else { "x/other" }, false);
        let refusal = Refusal::invalid("no");
        guard.answered(&if id == "b" { Err(refusal) } else { Ok(()) });
    }
    let list = |filter: RequestFilter| {
        let requests = recorder.recent(&filter);
        requests.into_iter().map(|request| request.request_id).collect::<Vec<_>>()
    };
    let all = RequestFilter::default();
    assert_eq!(list(all.clone()), ["d", "c", "b"]);
    assert_eq!(list(RequestFilter { before: Some(4), limit: 1, ..all.clone() }), ["c"]);
    assert_eq!(list(RequestFilter { after: Some(3), ..all.clone() }), ["d"]);
    assert_eq!(list(RequestFilter { failed: true, ..all.clone() }), ["b"]);
    assert_eq!(list(RequestFilter { model: Some("x/c".to_owned()), ..all.clone() }), ["c"]);
    assert!(list(RequestFilter { key: Some("other".to_owned()), ..all.clone() }).is_empty());
    let refused = recorder.one("b").unwrap().request;
    assert_eq!(
        (refused.status, refused.outcome, refused.error_type.as_deref()),
        (Some(400), "refused", Some("invalid_request"))
    );
    recorder.keep(1);
    assert_eq!(ids(&recorder.recent(&all)), ["d"]);
    recorder.keep(0);
    drop(begin(&recorder, "e"));
    assert!(recorder.recent(&all).is_empty() && recorder.one("e").is_none());
}

#[test]
fn a_request_has_nothing_of_the_one_whose_memory_it_uses() {
    let recorder = recorder(4);
    let first = begin(&recorder, "a");
    let timeline = first.timeline();
    first.asks("x/a", true);
    timeline.open(StepType::Attempt, &["attempt", "ollama"], &[FactName::Attempt.number(1)]);
    timeline.failed(ErrorKind::Timeout);
    timeline.settled(&row(), UsageOutcome::Failed);
    drop(first);
    let second = begin(&recorder, "b");
    // The first request is over, so nothing more is noted of it.
    timeline.close("timeout", &[FactName::Status.number(504)]);
    timeline.failed(ErrorKind::Server);
    second.answered(&Ok(()));
    drop(second);
    let [a, b] = ["a", "b"].map(|id| recorder.one(id).unwrap());
    assert_eq!((a.steps.len(), a.request.error_type.as_deref()), (2, Some("timeout")));
    assert_eq!(a.steps[0].outcome.as_deref(), Some("unfinished"));
    let RecordedRequest { requested_model, model, error_type, outcome, streamed, .. } = b.request;
    assert_eq!((b.steps, requested_model, model, error_type), (vec![], None, None, None));
    assert_eq!((outcome, streamed), ("completed", false));
}

#[test]
fn what_is_noted_is_read_again() {
    let times = [0, 1, 255, 256, u64::from(u32::MAX) + 1, 86_400_000_000, u64::MAX];
    let numbers = [0, 200, u32::MAX.into(), u64::from(u32::MAX) + 1, u64::MAX];
    let mut journal = Journal::default();
    let model = journal.add_head("meta/llama");
    for at_us in times {
        let step = journal.begin(256, StepType::Usage, &["a", "é", ""], at_us).unwrap();
        journal.end(step, StepEnd { at_us, busy_us: Some(at_us), outcome: "timeout" });
        journal.end(step, StepEnd { at_us, busy_us: None, outcome: "ok" });
    }
    for number in numbers {
        journal.add(256, &FactName::Turn.number(number).unwrap());
    }
    journal.add(1, &FactName::Action.word("pass").unwrap());
    assert_eq!(journal.head(model), "meta/llama");
    let read = |at_us: u64| at_us.min((1 << 40) - 1);
    let mut expected: Vec<Entry<'_>> = Vec::new();
    for (n, at_us) in (1..).zip(times.map(read)) {
        expected.push(Entry::Begin { step_type: StepType::Usage, parent: 256, at_us, name: "a é " });
        let ends = [(Some(at_us), "timeout"), (None, "ok")];
        let end = |(busy_us, outcome)| Entry::End { step: n, end: StepEnd { at_us, busy_us, outcome } };
        expected.extend(ends.map(end));
    }
    let fact = |number| Entry::Fact { step: 256, fact: FactName::Turn.number(number).unwrap() };
    expected.extend(numbers.map(fact));
    expected.push(Entry::Fact { step: 1, fact: FactName::Action.word("pass").unwrap() });
    assert_eq!(journal.entries().collect::<Vec<_>>(), expected);
}

#[test]
fn memory_that_is_still_referred_to_is_not_used_again() {
    let recorder = recorder(4);
    let first = begin(&recorder, "a");
    let late = first.timeline();
    drop(first);
    let second = begin(&recorder, "b");
    assert!(!is_shared(&late, &second.timeline()));
    late.open(StepType::Tool, &["late"], &[]);
    assert!(recorder.one("b").unwrap().steps.is_empty());
    drop((late, second));
    // Many at the same time leave places that are free, and memory for a few.
    drop((0..100).map(|_| begin(&recorder, "c")).collect::<Vec<_>>());
    let place = |guard: &RequestGuard| Arc::as_ptr(guard.timeline().shared.as_ref().unwrap());
    let [first, second] = [0; 2].map(|_| place(&begin(&recorder, "d")));
    assert!(std::ptr::eq(first, second));
}

fn is_shared(one: &Timeline, other: &Timeline) -> bool {
    Arc::ptr_eq(one.shared.as_ref().unwrap(), other.shared.as_ref().unwrap())
}

#[test]
fn running_requests_are_listed_and_their_places_used_again() {
    let recorder = recorder(RECORDED_MAX);
    for round in 0..3 {
        let names: Vec<String> = (0..40).map(|n| format!("{round}-{n}")).collect();
        let mut guards: Vec<RequestGuard> = names.iter().map(|id| begin(&recorder, id)).collect();
        let running = recorder.running();
        let mut found: Vec<&str> = ids(&running);
        found.sort_unstable();
        let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
        all.sort_unstable();
        assert_eq!(found, all);
        drop(guards.drain(10..30));
        assert_eq!(recorder.running().len(), 20);
    }
    assert!(recorder.running().is_empty());
    assert_eq!(recorder.recent(&RequestFilter { limit: 999, ..RequestFilter::default() }).len(), 120);
}

#[test]
fn steps_names_and_memory_are_bounded() {
    let recorder = recorder(RECORDED_MAX);
    for id in 0..600 {
        let guard = begin(&recorder, &id.to_string());
        let timeline = guard.timeline();
        for _ in 0..300 {
            let long = "é".repeat(100);
            let facts = [FactName::Plugin.name(&*long); 8];
            timeline.at_once(|moment| moment.note(StepType::Tool, &[&long, "x"], &facts));
        }
    }
    let last = recorder.one("599").unwrap();
    assert_eq!((last.steps.len(), last.steps_lost), (256, 44));
    assert_eq!(last.steps[0].name.len(), 128);
    let kept = recorder.recent(&RequestFilter { limit: usize::MAX, ..RequestFilter::default() });
    assert!((50..400).contains(&kept.len()), "8 MiB hold {} such requests", kept.len());
}

#[test]
fn requests_that_ended_since_another_one_are_told_and_the_rest_is_counted() {
    let recorder = recorder(4);
    let told = |since, most| {
        let EndedRequests { last, requests, left_out } = recorder.ended_since(since, most);
        let ids: Vec<String> = requests.into_iter().map(|request| request.request_id).collect();
        (last, ids.join(" "), left_out)
    };
    assert_eq!(told(0, 20), (0, String::new(), 0));
    ["a", "b", "c"].iter().for_each(|id| drop(begin(&recorder, id)));
    assert_eq!(told(0, 20), (3, "a b c".to_owned(), 0));
    assert_eq!(told(1, 20), (3, "b c".to_owned(), 0));
    assert_eq!(told(0, 2), (3, "b c".to_owned(), 1));
    assert_eq!(told(3, 20), (3, String::new(), 0));
    assert_eq!(told(1, 0), (3, String::new(), 2));
    ["d", "e", "f"].iter().for_each(|id| drop(begin(&recorder, id)));
    assert_eq!(told(0, 20), (6, "c d e f".to_owned(), 2), "the recorder keeps four");
    recorder.keep(0);
    assert_eq!(told(4, 20), (6, String::new(), 2));
}

#[tokio::test]
async fn a_request_is_followed_step_by_step_although_none_is_kept() {
    let recorder = recorder(0);
    let (sender, mut steps) = follow_steps();
    let guard = recorder.begin(|| beginning("a"), Some(sender), false);
    let timeline = guard.timeline();
    let step = timeline.begin(StepType::Route, &["router", "route"], &[]);
    timeline.end(step, "ok", &[FactName::Count.number(2)]);
    drop(guard);
    let (begun, ended) = (steps.next().await.unwrap(), steps.next().await.unwrap());
    assert_eq!((begun.n, begun.outcome, begun.us), (1, None, None));
    assert_eq!(
        (ended.n, ended.outcome.clone(), ended.facts.number(FactName::Count)),
        (1, Some("ok".to_owned()), Some(2))
    );
    assert!(steps.next().await.is_none());
    assert!(recorder.one("a").is_none());
}
