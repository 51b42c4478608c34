//! Measures what the vault costs compared with the storage engine alone: durable writes with a
//! growing number of writers, listing, release, opening and memory. `cargo run --release -p
//! cofferdam-store --example store_load -- [SECRETS [FOLDER [WRITERS...]]]`; the defaults are 100000
//! secrets, the system's temporary folder, and 1, 16, 64 and 256 writers.
//!
//! The duration of a sync depends on the disk. On a machine whose disk is faster than the disks of
//! interest, this shim makes each sync in FOLDER 4 ms slower:
//!
//! ```sh
//! cc -shared -fPIC -O1 -o shim.so tests/kit/shim/shim.c -ldl -lpthread
//! mkdir rules && ln -s /dev/null rules/record && echo 'sync * delay 4 0' > rules/control
//! LD_PRELOAD=$PWD/shim.so COFFERDAM_SHIM=$PWD/rules COFFERDAM_SHIM_ROOT=FOLDER \
//!   target/release/examples/store_load 100000 FOLDER
//! ```

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cofferdam_store::{
    Actor, BoundSecret, Clock, DirectoryLock, HostName, Hosts, NewSecret, OpenOptions, Pending, Purpose,
    ReleaseRequest, ReleaseScope, RootKeySource, SecretMetadata, SecretName, SecretValue, Store, VaultId,
};
use fjall::{KeyspaceCreateOptions, PersistMode};
use zeroize::Zeroizing;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const WRITERS: &[usize] = &[1, 16, 64, 256];
const TURNS: usize = 15;
const TURN: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(60);
/// A value of the length that providers' tokens have.
const VALUE: &str = "sk-0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop";

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let secrets = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let writers = arguments.map(|count| count.parse()).collect::<Result<Vec<usize>, _>>()?;
    let folder = tempfile::tempdir_in(parent)?;
    writes(folder.path(), if writers.is_empty() { WRITERS } else { &writers }).await?;
    many(&folder.path().join("many"), secrets).await
}

/// Compares durable writes through the vault with the same rows written to the storage engine in
/// batches with one fsync each. The two alternate in many short turns and the medians count,
/// because the speed of a disk varies over time.
async fn writes(folder: &Path, numbers: &[usize]) -> Outcome<()> {
    let (store, vault) = open(&folder.join("vault")).await?;
    let database = fjall::Database::builder(folder.join("engine")).open()?;
    let [meta, values] =
        ["meta", "values"].map(|name| database.keyspace(name, KeyspaceCreateOptions::default));
    let (meta, values) = (meta?, values?);
    let singly = |number: usize| -> Outcome<()> {
        let key = format!("{number:024}");
        let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&meta, key.as_str(), [7; 110].as_slice());
        batch.insert(&values, key.as_str(), [7; 105].as_slice());
        Ok(batch.commit()?)
    };
    for &writers in numbers {
        let (mut of_engine, mut of_vault, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut busy_micros = Vec::new();
        for _ in 0..TURNS {
            let singly = by_threads(writers, singly)?;
            let (begun, busy) = (Instant::now(), busy()?);
            let together = by_tasks(writers, &store, vault).await?;
            let puts = together * begun.elapsed().as_secs_f64();
            busy_micros.push((self::busy()? - busy).as_secs_f64() * 1e6 / puts);
            of_engine.push(singly);
            of_vault.push(together);
            ratios.push(together / singly);
        }
        let [singly, together, ratio, busy] = [of_engine, of_vault, ratios, busy_micros].map(median);
        report(
            &format!("{writers} writers"),
            &format!(
                "{singly:.0}/s singly, {together:.0}/s as PUTs of {busy:.0} us CPU, {ratio:.1} times as many"
            ),
        );
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// Writes with tasks, as a server does. Each task waits for its write before the next one. Writes
/// per second.
async fn by_tasks(writers: usize, store: &Store, vault: VaultId) -> Outcome<f64> {
    let (next, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut tasks = Vec::new();
    for _ in 0..writers {
        let (store, next) = (store.clone(), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            while begun.elapsed() < TURN {
                let new =
                    secret(vault, next.fetch_add(1, Ordering::Relaxed)).map_err(|error| error.to_string())?;
                let permit = store.queue_permit().await.map_err(|error| error.to_string())?;
                store.put_secret(permit, Actor::System, new).await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(next.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// Writes with threads. Each thread waits for its write before the next one. Writes per second.
fn by_threads(writers: usize, write: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<f64> {
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let work = || {
        while begun.elapsed() < TURN {
            write(next.fetch_add(1, Ordering::Relaxed)).map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    };
    let ended: Result<Vec<()>, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("panicked".to_owned())))
            .collect()
    });
    ended?;
    Ok(next.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

async fn many(folder: &Path, secrets: usize) -> Outcome<()> {
    let (store, vault) = open(folder).await?;
    report("memory of an empty store", &memory()?);
    let begun = Instant::now();
    let mut waiting = std::collections::VecDeque::new();
    for number in 0..secrets {
        waiting.push_back(put(&store, vault, number)?);
        if waiting.len() == 400 {
            waiting.pop_front().map(|first: Pending<SecretMetadata>| first.wait(PATIENCE)).transpose()?;
        }
    }
    waiting.into_iter().try_for_each(|pending| pending.wait(PATIENCE).map(drop))?;
    report(&format!("{secrets} secrets in one vault"), &format!("{:.1} s", begun.elapsed().as_secs_f64()));
    report("memory after writing them", &memory()?);
    store.close();
    drop(store);

    let begun = Instant::now();
    let (store, vault) = open(folder).await?;
    report("opening", &format!("{:.0} ms", begun.elapsed().as_secs_f64() * 1e3));
    report("memory after opening", &memory()?);
    for offset in [0, 10_000] {
        let list = async |_| {
            drop(store.list_secrets(vault, offset, 100).await?);
            Ok(())
        };
        time(&format!("list of 100 from offset {offset}"), 200, list).await?;
    }
    let VaultId::Workspace(workspace) = vault else { return Err("not a workspace".into()) };
    let host: HostName = "api.example.com".parse()?;
    let purpose = Purpose { used_by: "measure".to_owned(), request_id: "resp_measure".to_owned() };
    let release = async |round| {
        let secret = BoundSecret { name: name(round * 7_919 % secrets)?, host: host.clone() };
        let (actor, scope) = (Actor::System, ReleaseScope::Workspace(workspace));
        drop(store.release(ReleaseRequest { actor, scope, secret, purpose: purpose.clone() }).await?);
        Ok(())
    };
    time("release of one secret", 3_000, release).await?;
    let begun = Instant::now();
    let checked = store.verify(&mut |_, _, _| ControlFlow::Continue(()))?;
    let seconds = begun.elapsed().as_secs_f64();
    report(
        "checking every row",
        &format!("{seconds:.1} s, {} secrets, clean: {}", checked.secrets, checked.problems.is_empty()),
    );
    report("memory at the end", &memory()?);
    Ok(())
}

async fn open(folder: &Path) -> Outcome<(Store, VaultId)> {
    std::fs::create_dir_all(folder)?;
    let root_key = RootKeySource::File(folder.join("root.key"));
    let options =
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::system() };
    let store = Store::open(DirectoryLock::acquire(folder)?, options)?;
    let workspace = store.find_workspace("default").await?.id;
    Ok((store, VaultId::Workspace(workspace)))
}

fn name(number: usize) -> Outcome<SecretName> {
    Ok(format!("provider_token_n{number:08}").parse()?)
}

fn put(store: &Store, vault: VaultId, number: usize) -> Outcome<Pending<SecretMetadata>> {
    Ok(store.put_secret(store.queue_permit_within(PATIENCE)?, Actor::System, secret(vault, number)?))
}

fn secret(vault: VaultId, number: usize) -> Outcome<NewSecret> {
    let hosts = Hosts::parse(&["api.example.com"])?;
    let value = SecretValue::new(Zeroizing::new(VALUE.to_owned()))?;
    Ok(NewSecret { vault, name: name(number)?, hosts, value })
}

async fn time(what: &str, rounds: usize, call: impl AsyncFn(usize) -> Outcome<()>) -> Outcome<()> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let begun = Instant::now();
        call(round).await?;
        times.push(begun.elapsed());
    }
    times.sort();
    let micros = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e6);
    let (best, median) = (micros(times.first()), micros(times.get(times.len() / 2)));
    report(what, &format!("best {best:.1} us, median {median:.1} us"));
    Ok(())
}

/// Processor time this process has used so far, all threads together.
fn busy() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace();
    // User and system time, in hundredths of a second.
    let ticks = fields.skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(10 * ticks))
}

/// Memory of this process now, and its maximum so far.
fn memory() -> Outcome<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", "))
}

#[expect(clippy::print_stdout, reason = "printing is what this program is for")]
fn report(what: &str, result: &str) {
    println!("{what:32} {result}");
}
