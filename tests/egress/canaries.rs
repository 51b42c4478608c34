//! The search for released secrets that hosts make where `COFFERDAM_CANARIES` is set, as `just canaries` does: in the memory of guests, in what they are
//! handed, in log, rows, recordings, exports and answers. Here it is shown that it finds one.

use super::{API, Bench, GRANT, VALUE, assert_ok};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::host::Setup;
use crate::kit::processes::core_limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const ABORT: i32 = 6;

/// The value as a server or a guest could write it.
fn spelled() -> [String; 4] {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    [VALUE.to_owned(), STANDARD.encode(format!("user:{VALUE}")), hex, VALUE.chars().rev().collect()]
}

#[tokio::test]
async fn a_released_secret_that_reaches_a_guest_ends_the_process() {
    for text in spelled() {
        let mut bench = Bench::with(Setup::new().with_canaries(), "", GRANT).await;
        bench.secret("api_key", VALUE, API);
        assert_ok(&bench.get(&bench.url(API, "/")).await);
        // A client that knows the value sends it in its next request. The host cannot know that, but the test can.
        let body = json!({"model": MODEL, "input": text}).to_string();
        let request = Client::new(&bench.host).request(reqwest::Method::POST, "/responses").body(body);
        drop(request.header("content-type", "application/json").send().await);
        let status = bench.host.wait();
        assert_eq!(status.signal(), Some(ABORT), "{text}: {status}\n{}", bench.host.log());
        assert!(bench.host.log().contains("canary: a released secret is in "), "{}", bench.host.log());
        bench.host.expect_canary();
    }
}

#[tokio::test]
async fn a_crash_of_a_host_leaves_no_core_file_and_no_secret() {
    // Where the machine writes core files, this allows them for the programs that this test starts.
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let control = Command::new("sh").args(["-c", "kill -ABRT $$"]).current_dir(&directory).status().unwrap();
    assert_eq!(control.signal(), Some(ABORT));
    eprintln!("a program without protection dumps core here: {}", control.core_dumped());
    let mut bench = Bench::with(Setup::new().with_canaries(), "", GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    assert_eq!(core_limits(bench.host.pid()), ["0", "0"]);
    bench.host.signal("ABRT");
    let status = bench.host.wait();
    assert!(status.signal() == Some(ABORT) && !status.core_dumped(), "{status}");
    let found = bench.host.files_with(VALUE);
    assert!(found.is_empty() && !bench.host.log().contains(VALUE), "{found:?}");
}
