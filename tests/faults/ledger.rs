//! Money, when the process ends without a warning: every request is in the books once, and nothing is lent for
//! ever.

use crate::kit::client::Client;
use crate::kit::config::provider;
use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, count, seed};
use crate::kit::script;
use crate::kit::shim::{Action, Call, Rule, Shim};
use crate::kit::store::rows_in;
use crate::kit::upstream::{Reply, Upstream};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A kill may cost the rows of the last second.
const LOST_MAX: Duration = Duration::from_secs(1);
/// What a request reserves: about a token of input and ten of output, a dollar each.
const OUTPUT: u32 = 10;
/// How many ask for each workspace at the same time.
const CLIENTS: usize = 6;

/// A host with the model `test/paid` for a prepaid workspace and `test/open` for one without limit.
fn setup(paid: &Upstream, open: &Upstream) -> Setup {
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
fn prepaid_key(host: &Host) -> String {
    host.command(&["workspace", "create", "paid"]);
    host.command(&["credits", "add", "paid", "1000000"]);
    host.command(&["key", "create", "--workspace", "paid"])["key"].as_str().unwrap().to_owned()
}

/// Answers that reached their clients, and when.
type Finished = Mutex<Vec<(String, Instant)>>;

/// Asks until the host is gone; every other time as a stream.
async fn ask_on(client: Client, model: &str, finished: &Finished, ended: &AtomicBool) {
    let mut request = json!({"model": model, "input": "x", "max_output_tokens": OUTPUT});
    let mut streamed = false;
    while !ended.load(Ordering::Acquire) {
        streamed = !streamed;
        request["stream"] = streamed.into();
        let sent = client.request(reqwest::Method::POST, "/responses").body(request.to_string());
        let Ok(response) = sent.header("content-type", "application/json").send().await else { break };
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-generation-id"].to_str().unwrap().to_owned();
        // A stream that the kill cuts off is not finished.
        let Ok(text) = response.text().await else { break };
        if !streamed || text.contains("[DONE]") {
            finished.lock().unwrap().push((id, Instant::now()));
        }
    }
}

/// Lets clients ask for a while, then kills the host; what was finished, and when the end came.
async fn killed_under_load(
    host: &mut Host,
    paid_key: &str,
    time: Duration,
) -> (Vec<(String, Instant)>, Instant) {
    let (finished, ended) = (Finished::default(), AtomicBool::new(false));
    let clients = (0..2 * CLIENTS).map(|number| {
        let (key, model) =
            if number % 2 == 0 { (paid_key, "test/paid") } else { (host.key.as_str(), "test/open") };
        ask_on(Client::with_key(host, key), model, &finished, &ended)
    });
    let killed_at = Mutex::new(None);
    let kill = async {
        // The promise is about time, so this has to pass some.
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

fn once(rows: &[UsageRow]) -> BTreeMap<String, UsageRow> {
    let by_id: BTreeMap<String, UsageRow> =
        rows.iter().map(|row| (row.request_id.clone(), row.clone())).collect();
    assert_eq!(by_id.len(), rows.len(), "a request is in the books twice");
    by_id
}

/// The model of this workspace in the rows, and what they cost.
fn of<'r>(rows: &'r [UsageRow], model: &str) -> Vec<&'r UsageRow> {
    rows.iter().filter(|row| row.model == model).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_leaves_every_request_in_the_books_once_and_lends_nothing_for_ever() {
    let mut random = Random::new(seed());
    let (paid, open) = (Upstream::start().await, Upstream::start().await);
    for upstream in [&paid, &open] {
        upstream.always(|asked| match asked.body["stream"] == true {
            true => script::chat_stream(&["fine"]),
            false => script::chat("fine"),
        });
    }
    let mut host = setup(&paid, &open).start();
    let key = prepaid_key(&host);
    let rounds = count(2, 50);
    let (mut finished_in_all, mut due_in_all, mut lost_in_all) = (BTreeSet::new(), 0, 0);
    for round in 0..rounds {
        let time = Duration::from_millis(1_050 + random.below(900));
        let (finished, killed_at) = killed_under_load(&mut host, &key, time).await;
        // Opening is what charges requests that were running: here, and again by the next host.
        let first = rows_in(&host.data(), 1_000_000);
        let rows = rows_in(&host.data(), 1_000_000);
        assert_eq!(first, rows, "round {round}: opening again changes nothing");
        let by_id = once(&rows);
        let is_due = |at: &Instant| killed_at.saturating_duration_since(*at) > LOST_MAX;
        let (due, late): (Vec<_>, Vec<_>) = finished.into_iter().partition(|(_, at)| is_due(at));
        for (id, _) in &due {
            assert!(by_id.contains_key(id), "round {round}: no row for {id}");
        }
        due_in_all += due.len();
        lost_in_all += late.iter().filter(|(id, _)| !by_id.contains_key(id)).count();
        finished_in_all.extend(due.into_iter().chain(late).map(|(id, _)| id));
        let paid_rows = of(&rows, "test/paid");
        let seen = paid.asked().len();
        assert!(paid_rows.len() >= seen, "round {round}: {} rows, {seen} requests seen", paid_rows.len());
        host = Setup::after(&host).start();
        let credit = host.command(&["credits", "show", "paid"]);
        assert_eq!(credit["reserved"], 0.0, "round {round}: {credit}");
        let dollars = paid_rows.iter().map(|row| row.cost_pico).sum::<u64>() / 1_000_000_000_000;
        assert_eq!(credit["spent"].as_f64(), Some(dollars as f64), "round {round}: {credit}");
        let verified = host.command(&["vault", "verify"]);
        assert_eq!(verified["problems"], json!([]), "round {round}");
    }
    let rows = rows_in_ended(host);
    let interrupted = rows.iter().filter(|row| row.outcome == UsageOutcome::Interrupted).count();
    println!(
        "{rounds} kills: {} answers finished, {due_in_all} of them more than a second before a kill and all of \
         those in the books, {lost_in_all} lost in the last second (none of the prepaid workspace); {} rows, none \
         twice, {interrupted} interrupted; the prepaid workspace's provider saw {} requests and it has {} rows",
        finished_in_all.len(),
        rows.len(),
        paid.asked().len(),
        of(&rows, "test/paid").len(),
    );
}

fn rows_in_ended(mut host: Host) -> Vec<UsageRow> {
    host.end();
    rows_in(&host.data(), 1_000_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_running_is_charged_once_wherever_the_next_start_is_killed() {
    for (call, path) in
        [(Call::Write, "jnl"), (Call::Sync, "jnl"), (Call::Write, "anchor"), (Call::Sync, "anchor")]
    {
        let host = killed_while_one_runs().await;
        // The next start is killed in the commit that charges it.
        let shim = Shim::new(&host.data());
        shim.rules(&[Rule::new(call, path, Action::Freeze)]);
        let mut command = shim.on(Setup::after(&host)).serve();
        let mut starting = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        shim.until_frozen();
        starting.kill().unwrap();
        starting.wait().unwrap();
        for _ in 0..2 {
            let rows = rows_in(&host.data(), 10);
            let [row] = rows.as_slice() else { panic!("{path}: {rows:?}") };
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

/// A host that was killed while its provider had one request and had not answered.
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
