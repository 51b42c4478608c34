//! Failing calls that are recorded and replayed through the interface of the crate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_runtime::{
    CallErrorKind, OperatorGrant, RECORDING_BYTES_MAX, Recording, Replayed, ReplayedVerdict, Runtime,
    Services,
};

use tempfile::TempDir;

use crate::kit::{
    PROVIDER, TOOL, context, everything, fixture, frame, head, plugin, recording_runtime, target,
};

fn recorded_grant() -> OperatorGrant {
    OperatorGrant { record: Some(3), ..everything() }
}

/// Waits for the only recording, which is written on a thread of its own.
async fn recording(folder: &TempDir) -> PathBuf {
    loop {
        let files = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
        let done = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
        if let Some(file) = files.map(|entry| entry.path()).find(done) {
            return file;
        }
        tokio::task::yield_now().await;
    }
}

async fn replay(file: &Path, fixture_name: &str) -> Replayed {
    let recording = Recording::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    let metered = Runtime::start_metered(Duration::from_millis(2), None).unwrap();
    metered.replay(recording, fixture(fixture_name).into()).await.unwrap().unwrap()
}

#[tokio::test]
async fn clocks_random_bytes_and_seeds_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = recording_runtime(folder.path());
    let tool = plugin(&runtime, "tool", TOOL, fixture("tool"), recorded_grant());
    let failed = tool.invoke(&context(), Services::default(), "bad inputs", b"{}", b"{}").await.unwrap_err();
    assert!(matches!(failed.kind, CallErrorKind::InvalidAnswer(_)));
    let replayed = replay(&recording(&folder).await, "tool").await;
    assert_eq!(replayed.verdict, ReplayedVerdict::Same, "{replayed:?}");
    assert!(replayed.imports >= 5, "{replayed:?}");
    assert_eq!(replayed.recorded.kind, "invalid_answer");
}

#[tokio::test]
async fn an_attempt_at_a_provider_is_replayed_from_its_first_call() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = recording_runtime(folder.path());
    let provider = plugin(&runtime, "provider", PROVIDER, fixture("provider"), recorded_grant());
    let mut attempt = provider.open_provider(&context()).await.unwrap();
    attempt.prepare(b"{\"model\":\"m\"}", &target("m")).await.unwrap().unwrap();
    attempt.pause();
    attempt.resume(&context()).await.unwrap();
    attempt.open_decoder(&head()).await.unwrap();
    attempt.feed(&[frame("", "hello")]).await.unwrap().unwrap();
    attempt.feed(&[frame("trap", "")]).await.unwrap_err();
    drop(attempt);
    let file = recording(&folder).await;
    let replayed = replay(&file, "provider").await;
    assert_eq!(replayed.verdict, ReplayedVerdict::Same, "{replayed:?}");
    assert_eq!(replayed.recorded.function, "decoder.feed");
    let text = std::fs::read_to_string(&file).unwrap();
    for function in ["generation.prepare", "decoder.new", "decoder.feed"] {
        assert!(text.contains(&format!("{{\"call\":{{\"function\":\"{function}\"")), "{function}: {text}");
    }
}

#[tokio::test]
async fn a_recording_beyond_the_limit_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = recording_runtime(folder.path());
    let tool = plugin(&runtime, "tool", TOOL, fixture("tool"), recorded_grant());
    let long = vec![b' '; RECORDING_BYTES_MAX];
    tool.invoke(&context(), Services::default(), "trap", &long, b"{}").await.unwrap_err();
    tool.invoke(&context(), Services::default(), "trap", b"short", b"{}").await.unwrap_err();
    // Calls are written in their order, so the long one would be there too.
    let file = recording(&folder).await;
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    assert!(std::fs::read_to_string(&file).unwrap().contains("short"));
}
