//! `density`: many paced streams at once.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::{JoinSet, LocalSet};

use crate::client::{Connection, LoadRequest, within};
use crate::load::percentile;
use crate::process::{machine_ticks, processors, raise_descriptor_limit};
use crate::scene::{prompt, streamed};
use crate::site::{Build, ModelScript, Program, Site};
use crate::table::{Against, Table, TableRow};
use crate::upstream::microseconds;

#[derive(clap::Args)]
pub(crate) struct DensityOptions {
    /// The build of the program as NAME=PATH
    #[arg(long, default_value = "dist=target/dist/cofferdam")]
    program: Build,
    /// How many streams are open at once
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    streams: u16,
    /// How long all of them are held open
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    secs: u16,
    /// How many are opened in a second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rate: u16,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Each stream has one event in this time.
const EVERY: Duration = Duration::from_secs(1);
/// From the last opening to the measurement.
const SETTLING: Duration = Duration::from_secs(2);

/// What one stream showed while all were open.
#[derive(Default)]
struct Delays {
    /// From the provider's clock to the arrival at the client.
    underway: Vec<Duration>,
    /// How much the time between two arrivals differs from the time between their sendings.
    gaps: Vec<Duration>,
}

pub(crate) async fn run(options: &DensityOptions) -> anyhow::Result<()> {
    let streams = u64::from(options.streams);
    let descriptors = raise_descriptor_limit()?;
    // A stream takes one of the client's connections and one of the provider's.
    if descriptors < 2 * streams + 500 {
        bail!(
            "--streams: {streams} need {} descriptors, the system allows {descriptors}: raise `ulimit -Hn`",
            2 * streams + 500
        );
    }
    let opening = Duration::from_secs_f64(f64::from(options.streams) / f64::from(options.rate));
    let hold = Duration::from_secs(u64::from(options.secs));
    let events = (opening + SETTLING + hold).as_secs() + 10;
    let script = format!("paced-{events}-{}", EVERY.as_millis());
    let site = Site::start().await?;
    let room = streams + 1_000;
    let tables = format!("[limits]\nconnections = {room}\nstreams = {room}\n");
    let models = [ModelScript::new(&script), ModelScript::new("stream")];
    let program = Program::start(&options.program, &site, &site.config(&tables, &models)).await?;
    let request =
        |script| LoadRequest::post("/v1/responses", &program.key, streamed(script, prompt()).to_string());
    Connection::open(program.address).await?.ask_well(&request("stream")).await?;
    let paced = Rc::new(request(&script));
    LocalSet::new().run_until(hold_open(options, &program, paced, hold)).await
}

async fn hold_open(
    options: &DensityOptions,
    program: &Program,
    request: Rc<LoadRequest>,
    hold: Duration,
) -> anyhow::Result<()> {
    let memory = || anyhow::Ok([program.processes.resident()?, program.processes.without_repeated()?]);
    let before = memory()?;
    let is_measuring = Rc::new(Cell::new(false));
    let mut tasks = JoinSet::new();
    let mut beat = tokio::time::interval(Duration::from_secs_f64(1.0 / f64::from(options.rate)));
    for _ in 0..options.streams {
        beat.tick().await;
        tasks.spawn_local(follow(program.address, Rc::clone(&request), Rc::clone(&is_measuring)));
    }
    tokio::time::sleep(SETTLING).await;
    let open = program.metric("cofferdam_streams_running").await?;
    let (ticks, times, begun) = (machine_ticks()?, program.processes.times()?, Instant::now());
    is_measuring.set(true);
    tokio::time::sleep(hold).await;
    is_measuring.set(false);
    let share = program.processes.spent_since(&times)? as f64
        / begun.elapsed().as_nanos() as f64
        / processors() as f64;
    let ([busy, all], [busy_before, all_before]) = (machine_ticks()?, ticks);
    let held = memory()?;

    let (mut failed, mut delays) = (0_u32, Delays::default());
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            Ok(more) => {
                delays.underway.extend(more.underway);
                delays.gaps.extend(more.gaps);
            }
            Err(error) => {
                failed += 1;
                if failed == 1 {
                    eprintln!("a stream failed: {error:#}");
                }
            }
        }
    }
    delays.underway.sort_unstable();
    delays.gaps.sort_unstable();
    let kib = |now: u64, then: u64| now.saturating_sub(then) as f64 / f64::from(options.streams);
    let ([resident, once], [resident_before, once_before]) = (held, before);
    let machine = (busy - busy_before) as f64 / (all - all_before).max(1) as f64;
    let millis = |sorted: &[Duration]| percentile(sorted, 0.99).as_secs_f64() * 1e3;
    let figures = [
        ("streams open at once", "streams", None, open),
        ("streams that failed", "streams", Some(0.0), f64::from(failed)),
        ("resident memory for a stream", "KiB", Some(64.0), kib(resident, resident_before)),
        ("the same, repeated pages counted once", "KiB", None, kib(once, once_before)),
        ("added to the gap between two events, p99", "ms", Some(10.0), millis(&delays.gaps)),
        ("from the provider to the client, p99", "ms", None, millis(&delays.underway)),
        ("processor time of the program", "% of all processors", None, share * 100.0),
        ("busy share of the machine", "%", Some(60.0), machine * 100.0),
    ];
    let rows = figures.map(|(title, unit, target, figure)| TableRow {
        title: title.to_owned(),
        unit,
        against: Against::Nothing,
        target,
        samples: vec![vec![figure]],
    });
    let table = Table { servers: vec![program.name.clone()], has_proxy: false, rows: rows.into() };
    table.publish(options.json.as_deref())?;
    if failed > 0 {
        bail!("{failed} of {} streams failed", options.streams);
    }
    Ok(())
}

/// Reads one stream to its end.
async fn follow(
    address: SocketAddr,
    request: Rc<LoadRequest>,
    is_measuring: Rc<Cell<bool>>,
) -> anyhow::Result<Delays> {
    let mut connection = Connection::open(address).await?;
    let response = within(connection.send(&request), &request.path).await?;
    if response.status() != 200 {
        bail!("the answer has the status {}", response.status());
    }
    let mut body = response.into_body();
    let (mut delays, mut last, mut is_complete) = (Delays::default(), None, false);
    while let Some(piece) = within(next(&mut body), "the next event").await? {
        is_complete |= memchr::memmem::find(&piece, crate::compare::END).is_some();
        let Some(sent) = sent_at(&piece) else { continue };
        let arrived = microseconds();
        if let (true, Some((sent_before, arrived_before))) = (is_measuring.get(), last) {
            let gap: u64 = arrived - arrived_before;
            delays.gaps.push(Duration::from_micros(gap.abs_diff(sent - sent_before)));
            delays.underway.push(Duration::from_micros(arrived.saturating_sub(sent)));
        }
        last = Some((sent, arrived));
    }
    if !is_complete {
        bail!("the stream ended without `response.completed`");
    }
    Ok(delays)
}

async fn next(body: &mut Incoming) -> anyhow::Result<Option<bytes::Bytes>> {
    let frame = body.frame().await.transpose()?;
    Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// The time that the last delta in a piece of the stream says.
fn sent_at(piece: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"delta\":\"";
    let start = memchr::memmem::rfind(piece, BEFORE)? + BEFORE.len();
    let rest = piece.get(start..)?;
    let digits = rest.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
