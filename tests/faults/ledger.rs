//! Money when the process is killed: every request is recorded once with all its provider calls,
//! and no reservation stays open.

mod further;

use crate::kit::client::Client;
use crate::kit::config::provider;
use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, count, seed};
use crate::kit::script;
use crate::kit::shim::{Action, Call, Rule, Shim};
use crate::kit::store::rows_in;
use crate::kit::upstream::{Asked, Reply, Upstream};
use crate::tools::script::{call, calls};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A kill may lose the rows of the last second.
const LOST_MAX: Duration = Duration::from_secs(1);
/// Tokens of output that a request reserves, besides about one token of input, at a dollar each.
pub const OUTPUT: u32 = 10;
/// The cost of a turn, in dollars: 7 tokens in, 3 out.
const TURN: u64 = 10;
/// Concurrent clients for each workspace.
const CLIENTS: usize = 6;

/// A host with the model `test/paid` for a prepaid workspace and `test/open` for one without a
/// limit.
pub fn setup(paid: &Upstream, open: &Upstream) -> Setup {
    let model = |name: &str| {
        format!(
            "[[models]]\nid = \"test/{name}\"\n\
             endpoints = [{{ provider = \"{name}\", model = \"m\", input = 1000000, output = 1000000 }}]\n"
        )
    };
    let providers =
        provider("paid", "openai-chat", &paid.base) + &provider("open", "openai-chat", &open.base);
    Setup::new().config(&(providers + &model("paid") + &model("open")))
}

/// The key of a new workspace with credit.
pub fn prepaid_key(host: &Host) -> String {
    host.command(&["workspace", "create", "paid"]);
    host.command(&["credits", "add", "paid", "1000000"]);
    host.command(&["key", "create", "--workspace", "paid"])["key"].as_str().unwrap().to_owned()
}

/// A response that reached its client.
struct Answered {
    id: String,
    is_paid: bool,
    at: Instant,
}

/// Sends requests until the host is gone. Every second one is a stream, and half of the streams use
/// a tool.
async fn ask_on(client: Client, is_paid: bool, finished: &Mutex<Vec<Answered>>, ended: &AtomicBool) {
    let model = if is_paid { "test/paid" } else { "test/open" };
    let mut request = json!({"model": model, "input": "x", "max_output_tokens": OUTPUT});
    for number in 0_u32.. {
        if ended.load(Ordering::Acquire) {
            break;
        }
        let streamed = number.is_multiple_of(2);
        request["stream"] = streamed.into();
        request["tools"] = if number % 4 < 2 { json!([]) } else { json!([{"type": "service:datetime"}]) };
        let sent = client.request(reqwest::Method::POST, "/responses").body(request.to_string());
        let Ok(response) = sent.header("content-type", "application/json").send().await else { break };
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-generation-id"].to_str().unwrap().to_owned();
        // A stream that the kill cuts off does not count as finished.
        let Ok(text) = response.text().await else { break };
        if !streamed || text.contains("[DONE]") {
            finished.lock().unwrap().push(Answered { id, is_paid, at: Instant::now() });
        }
    }
}

/// Runs clients for a while, then kills the host; returns the finished responses and the time of
/// the kill.
async fn killed_under_load(host: &mut Host, paid_key: &str, time: Duration) -> (Vec<Answered>, Instant) {
    let (finished, ended) = (Mutex::default(), AtomicBool::new(false));
    let clients = (0..2 * CLIENTS).map(|number| {
        let is_paid = number % 2 == 0;
        let key = if is_paid { paid_key } else { host.key.as_str() };
        ask_on(Client::with_key(host, key), is_paid, &finished, &ended)
    });
    let killed_at = Mutex::new(None);
    let kill = async {
        // The guarantee is about real time, so the test has to wait.
        tokio::time::sleep(time).await;
        *killed_at.lock().unwrap() = Some(Instant::now());
        host.signal("KILL");
        ended.store(true, Ordering::Release);
    };
    futures_util::future::join(futures_util::future::join_all(clients), kill).await;
    host.wait();
    let killed_at = killed_at.into_inner().unwrap().unwrap();
    (finished.into_inner().unwrap(), killed_at)
}

/// A model that calls a tool if it has one, and then answers.
pub fn answer(asked: &Asked) -> Reply {
    let streamed = asked.body["stream"] == true;
    let has_tools = asked.body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let was_told =
        asked.body["messages"].as_array().is_some_and(|it| it.iter().any(|it| it["role"] == "tool"));
    match (has_tools && !was_told, streamed) {
        (true, _) => calls(streamed, "", &[call("c", "datetime", "{}")]),
        (false, true) => script::chat_stream(&["fine"]),
        (false, false) => script::chat("fine"),
    }
}

pub fn once(rows: &[UsageRow]) -> BTreeMap<String, UsageRow> {
    let by_id: BTreeMap<String, UsageRow> =
        rows.iter().map(|row| (row.request_id.clone(), row.clone())).collect();
    assert_eq!(by_id.len(), rows.len(), "a request is in the books twice");
    by_id
}

/// The rows of this model.
pub fn of<'r>(rows: &'r [UsageRow], model: &str) -> Vec<&'r UsageRow> {
    rows.iter().filter(|row| row.model == model).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_records_every_request_once_and_leaves_no_reservation() {
    let mut random = Random::new(seed());
    let (paid, open) = (Upstream::start().await, Upstream::start().await);
    for upstream in [&paid, &open] {
        upstream.always(answer);
    }
    let mut host = setup(&paid, &open).start();
    let key = prepaid_key(&host);
    let rounds = count(2, 50);
    let (mut finished_in_all, mut due_in_all, mut paid_in_all, mut lost_in_all) = (0, 0, 0, 0);
    for round in 0..rounds {
        let time = Duration::from_millis(1_050 + random.below(900));
        let (finished, killed_at) = killed_under_load(&mut host, &key, time).await;
        // Opening the store charges requests that were running: here, and again when the next host
        // starts.
        let first = rows_in(&host.data(), 1_000_000);
        let rows = rows_in(&host.data(), 1_000_000);
        assert_eq!(first, rows, "round {round}: opening again changes nothing");
        let by_id = once(&rows);
        let is_due = |it: &Answered| killed_at.saturating_duration_since(it.at) > LOST_MAX;
        for answered in &finished {
            let is_there = by_id.contains_key(&answered.id);
            let may_be_lost = !answered.is_paid && !is_due(answered);
            assert!(is_there || may_be_lost, "round {round}: no row for {}", answered.id);
            lost_in_all += usize::from(!is_there);
        }
        due_in_all += finished.iter().filter(|it| is_due(it)).count();
        paid_in_all += finished.iter().filter(|it| it.is_paid).count();
        finished_in_all += finished.len();
        let paid_rows = of(&rows, "test/paid");
        let seen = paid.asked().len();
        host = Setup::after(&host).start();
        let credit = host.command(&["credits", "show", "paid"]);
        assert_eq!(credit["reserved"], 0.0, "round {round}: {credit}");
        let dollars = paid_rows.iter().map(|row| row.cost_pico).sum::<u64>() / 1_000_000_000_000;
        assert_eq!(credit["spent"].as_f64(), Some(dollars as f64), "round {round}: {credit}");
        // A turn that was running is charged its reservation, which is more.
        assert!(dollars >= TURN * seen as u64, "round {round}: {seen} turns seen, {dollars} dollars charged");
        let verified = host.command(&["vault", "verify"]);
        assert_eq!(verified["problems"], json!([]), "round {round}");
    }
    let rows = rows_in_ended(host);
    let interrupted = rows.iter().filter(|row| row.outcome == UsageOutcome::Interrupted).count();
    println!(
        "{rounds} kills: {finished_in_all} answers finished; {due_in_all} more than a second before a kill, all of \
         them in the books; {paid_in_all} for the prepaid workspace, all of them in the books; {lost_in_all} others \
         lost in the last second; {} rows, none twice, {interrupted} interrupted; the prepaid workspace's provider \
         saw {} turns, for which {} dollars are charged in {} rows",
        rows.len(),
        paid.asked().len(),
        of(&rows, "test/paid").iter().map(|row| row.cost_pico).sum::<u64>() / 1_000_000_000_000,
        of(&rows, "test/paid").len(),
    );
}

fn rows_in_ended(mut host: Host) -> Vec<UsageRow> {
    host.end();
    rows_in(&host.data(), 1_000_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_request_is_charged_once_even_if_the_next_start_is_killed() {
    for (call, path) in
        [(Call::Write, "jnl"), (Call::Sync, "jnl"), (Call::Write, "anchor"), (Call::Sync, "anchor")]
    {
        let host = killed_while_one_runs().await;
        // The next start is killed in the commit that charges the request.
        let shim = Shim::new(&host.data());
        shim.rules(&[Rule::new(call, path, Action::Freeze)]);
        let mut command = shim.on(Setup::after(&host)).serve();
        let mut starting = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        shim.until_frozen();
        starting.kill().unwrap();
        starting.wait().unwrap();
        for _ in 0..2 {
            let rows = rows_in(&host.data(), 10);
            assert_eq!(rows.len(), 1, "{path}: {rows:?}");
            let row = &rows[0];
            assert_eq!((row.outcome, row.model.as_str()), (UsageOutcome::Interrupted, "test/paid"));
            let reserved = row.cost_pico / 1_000_000_000_000;
            assert!((u64::from(OUTPUT)..20).contains(&reserved), "{reserved}");
        }
        let host = Setup::after(&host).start();
        let credit = host.command(&["credits", "show", "paid"]);
        assert_eq!(credit["reserved"], 0.0, "{credit}");
        assert!(credit["spent"].as_f64().unwrap() >= f64::from(OUTPUT), "{credit}");
    }
}

/// A host that was killed while its provider had one request without a response.
async fn killed_while_one_runs() -> Host {
    let (paid, open) = (Upstream::start().await, Upstream::start().await);
    let mut host = setup(&paid, &open).start();
    let key = prepaid_key(&host);
    paid.reply(Reply::Hang);
    let client = Client::with_key(&host, &key);
    let body = json!({"model": "test/paid", "input": "x", "max_output_tokens": OUTPUT});
    let asked = async {
        while paid.asked().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = client.post("/responses", &body) => panic!("{}", answer.text),
        () = asked => host.kill(),
    }
    host
}
