//! The arithmetic of slices over the rows of a store: hosts, requests, failed commits and deaths at random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::audit::Actor;
use crate::changes::{KeyOwner, NewKey, RowIntent, SettledUsage, guarded, shared_intents};
use crate::clock::Clock;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on};
use crate::spend::{SpendLimits, SpendWindow};
use crate::store::Store;
use crate::usage::{HeldAmount, UsageKind, UsageOutcome};

/// The most that a request is estimated at, and the most that it costs.
const ESTIMATE_MAX: u64 = 100;
const CREDIT: u64 = 3_000;
const KEY_LIMIT: u64 = 1_200;
const HOSTS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Begin { host: usize, key: usize, estimate: u64 },
    Settle { host: usize, which: usize, part: u64 },
    Release { host: usize, which: usize },
    Flush { host: usize, fails: bool },
    Pass { ms: u64 },
    Recall,
    Kill { host: usize },
    Sleep { host: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let host = 0..HOSTS;
    let step = prop_oneof![
        8 => (host.clone(), 0..2_usize, 1..=ESTIMATE_MAX)
            .prop_map(|(host, key, estimate)| Step::Begin { host, key, estimate }),
        6 => (host.clone(), 0..20_usize, 0..=100_u64)
            .prop_map(|(host, which, part)| Step::Settle { host, which, part }),
        1 => (host.clone(), 0..20_usize).prop_map(|(host, which)| Step::Release { host, which }),
        4 => (host.clone(), any::<bool>()).prop_map(|(host, fails)| Step::Flush { host, fails }),
        2 => (1..15_000_u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Recall),
        1 => host.clone().prop_map(|host| Step::Kill { host }),
        1 => host.prop_map(|host| Step::Sleep { host }),
    ];
    prop::collection::vec(step, 1..80)
}

/// A request as a host has it.
struct Running {
    row: UsageRow,
    estimate: u64,
    held: u64,
    part: Option<SlicePart>,
    has_intent: bool,
    has_ended: bool,
}

type Request = Mutex<Running>;

fn lock(request: &Request) -> MutexGuard<'_, Running> {
    request.lock().unwrap()
}

impl SliceRequest for Request {
    fn own_intent(self: Arc<Self>, batch: &mut WriteBatch) -> Result<(), Gap> {
        let running = lock(&self);
        let (Some(part), Some(host), false) = (&running.part, batch.slice_host(), running.has_ended) else {
            return Ok(());
        };
        let (id, pico) = (part.id(), part.pico());
        if batch.has_slice(&id)? {
            let key = rows::shared_intent_key(running.row.workspace, &running.row.request_id);
            let intent = Intent::of(&running.row, pico).on(&host.to_string());
            batch.put_row(Guard::Account(running.row.workspace), key, &intent)?;
            batch.leave_slice(id, pico, Arc::<Request>::clone(&self), pico);
        }
        Ok(())
    }

    fn moved(&self, _: u64) {
        let mut running = lock(self);
        if let Some(part) = running.part.take() {
            part.leave();
            running.has_intent = true;
        }
    }
}

struct Host {
    id: SliceHost,
    slices: Arc<Slices>,
    running: Vec<Arc<Request>>,
    rows: Vec<SettledUsage>,
}

struct World {
    _scratch: ScratchDirectory,
    clock: Clock,
    store: Store,
    workspace: WorkspaceId,
    keys: [KeyId; 2],
    hosts: Vec<Host>,
    lives: u8,
    requests: usize,
    /// Requests whose hosts were taken for dead.
    lost: BTreeSet<String>,
    /// What each of the others cost.
    costs: BTreeMap<String, u64>,
}

impl World {
    fn new() -> World {
        let scratch = ScratchDirectory::new();
        let store = Store::open(scratch.lock(), scratch.options()).unwrap();
        let workspace = create_workspace(&store, "spenders").id;
        let key = |limit| {
            let owner = KeyOwner::Member { workspace, member: None };
            let limits = SpendLimits::default().with(SpendWindow::Total, limit);
            let new = NewKey { owner, name: None, expires_at_ms: None, limits };
            store.issue_key(Actor::Operator, new).unwrap().key.id
        };
        let keys = [key(None), key(Some(KEY_LIMIT))];
        store.add_credit(Actor::Operator, workspace, CREDIT).unwrap();
        let (lost, costs) = (BTreeSet::new(), BTreeMap::new());
        let clock = scratch.clock.clone();
        let mut world = World {
            _scratch: scratch,
            clock,
            store,
            workspace,
            keys,
            hosts: Vec::new(),
            lives: 0,
            requests: 0,
            lost,
            costs,
        };
        world.hosts = (0..HOSTS).map(|_| world.life()).collect();
        world
    }

    fn id(&mut self) -> SliceHost {
        self.lives += 1;
        SliceHost([self.lives; 16])
    }

    fn life(&mut self) -> Host {
        let slices = Arc::new(Slices::new(self.clock.clone()));
        slices.set_hosts(HOSTS);
        Host { id: self.id(), slices, running: Vec::new(), rows: Vec::new() }
    }

    /// Commits a change of a host, unless it fails, with the usage rows of the host.
    fn commit<T: Send + 'static>(
        &mut self,
        host: usize,
        fails: bool,
        apply: impl Fn(&mut WriteBatch) -> Result<T, Gap> + Send + 'static,
    ) -> Option<T> {
        let Host { id, slices, rows, .. } = &mut self.hosts[host];
        let (id, rows, own) = (*id, std::mem::take(rows), Arc::clone(slices));
        let (epoch, settled) = (slices.epoch(), rows.clone());
        let change = move |batch: &mut WriteBatch| {
            (batch.host, batch.slices.host) = (Some(id), Some(id));
            let done = apply(batch)?;
            batch.add_usage(settled.iter().cloned())?;
            Ok((done, batch.write_slices(&own, epoch)?))
        };
        if fails {
            let mut batch = WriteBatch::new(self.store.snapshot().unwrap(), self.clock.now_ms());
            assert!(change(&mut batch).is_ok());
            self.hosts[host].rows = rows;
            return None;
        }
        let guard = Guard::Account(self.workspace);
        let (done, effects) = self.store.make(guarded([guard], change)).unwrap();
        self.hosts[host].slices.publish(effects);
        Some(done)
    }

    fn begin(&mut self, host: usize, key: usize, estimate: u64) {
        self.requests += 1;
        let (workspace, key) = (self.workspace, self.keys[key]);
        let name = format!("r_{}", self.requests);
        let row = UsageRow::begun(name, workspace, key, UsageKind::Responses, false);
        let running = Running {
            row: row.clone(),
            estimate,
            held: estimate,
            part: None,
            has_intent: false,
            has_ended: false,
        };
        let request = Arc::new(Mutex::new(running));
        let Host { id, slices, .. } = &self.hosts[host];
        let (id, weak) = (*id, Arc::downgrade(&request));
        let mut part = None;
        if slices.take(id, &row, &mut part, estimate, weak) {
            lock(&request).part = part;
        } else {
            let asked = self.commit(host, false, move |batch| {
                let held = batch.reserve_shared(&row, HeldAmount::default(), false, 0, estimate)?;
                batch.touch_slice(workspace, key);
                Ok(held)
            });
            let Some(Ok(held)) = asked else { return };
            let mut running = lock(&request);
            (running.held, running.has_intent) = (held.pledged, true);
        }
        self.hosts[host].running.push(request);
    }

    fn take(&mut self, host: usize, which: usize) -> Option<Arc<Request>> {
        let running = &mut self.hosts[host].running;
        (!running.is_empty()).then(|| running.swap_remove(which % running.len()))
    }

    fn settle(&mut self, host: usize, which: usize, part: u64) {
        let Some(request) = self.take(host, which) else { return };
        let mut running = lock(&request);
        running.has_ended = true;
        // One that was alone on the account has less than its estimate, and may cost as much.
        let cost = running.estimate * part / 100;
        let row = UsageRow {
            at_ms: self.clock.now_ms(),
            cost_pico: cost,
            outcome: UsageOutcome::Completed,
            ..running.row.clone()
        };
        let intent = match running.part.take() {
            Some(part) => {
                let host = part.id().host;
                part.settle(cost);
                RowIntent::Slice(host)
            }
            None => RowIntent::Shared,
        };
        if !self.lost.contains(&row.request_id) {
            self.costs.insert(row.request_id.clone(), cost);
        }
        self.hosts[host].rows.push(SettledUsage { row, intent });
    }

    fn release(&mut self, host: usize, which: usize) {
        let Some(request) = self.take(host, which) else { return };
        let mut running = lock(&request);
        match running.part.take() {
            Some(part) => part.leave(),
            None => {
                drop(running);
                self.hosts[host].running.push(request);
            }
        }
    }

    /// Commits what a host has to do for its slices. Requests that get an intent of their own were asked for twice, as
    /// where the first commit takes long.
    fn keep(&mut self, host: usize) {
        let Host { id, slices, .. } = &self.hosts[host];
        for DueSlices { workspace, keys, movers } in slices.due(*id) {
            self.commit(host, false, move |batch| {
                keys.iter().for_each(|key| batch.touch_slice(workspace, *key));
                movers.iter().chain(&movers).try_for_each(|request| Arc::clone(request).own_intent(batch))
            });
        }
    }

    fn recall(&mut self) {
        let workspace = self.workspace;
        for host in 0..HOSTS {
            self.hosts[host].slices.recall(|id| id.workspace == workspace);
            self.keep(host);
        }
    }

    fn intents(&self) -> Vec<Intent> {
        let view = self.store.snapshot().unwrap();
        let prefix = rows::shared_intents_of(self.workspace);
        let rows = view.range(&shared_intents(&prefix)).unwrap();
        let decode = |(key, row): (crate::state::RowBytes, crate::state::RowBytes)| {
            rows::decode::<Intent>(view.keys(), rows::KEYS, &key, &row).unwrap()
        };
        rows.map(|row| decode(row.unwrap())).collect()
    }

    /// Another host charges what a host has left.
    fn bury(&mut self, host: usize) {
        let dead = self.hosts[host].id.to_string();
        let left: Vec<SettledUsage> = self
            .intents()
            .into_iter()
            .filter(|intent| intent.host() == Some(&dead))
            .map(|intent| intent.settled(RowIntent::Shared))
            .collect();
        for settled in left.iter().filter(|settled| settled.intent != RowIntent::Freed) {
            self.costs.insert(settled.row.request_id.clone(), settled.row.cost_pico);
        }
        self.store.make(guarded([], move |batch| batch.add_usage(left.iter().cloned()))).unwrap();
    }

    /// Everything that a host has not committed may be lost.
    fn lose(&mut self, host: usize) {
        let Host { running, rows, .. } = &self.hosts[host];
        self.lost.extend(running.iter().map(|request| lock(request).row.request_id.clone()));
        self.lost.extend(rows.iter().map(|settled| settled.row.request_id.clone()));
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Begin { host, key, estimate } => self.begin(host, key, estimate),
            Step::Settle { host, which, part } => self.settle(host, which, part),
            Step::Release { host, which } => self.release(host, which),
            Step::Flush { host, fails } => drop(self.commit(host, fails, |_| Ok(()))),
            Step::Pass { ms } => {
                self.clock.advance(Duration::from_millis(ms));
                (0..HOSTS).for_each(|host| self.keep(host));
            }
            Step::Recall => self.recall(),
            Step::Kill { host } => {
                self.lose(host);
                self.bury(host);
                self.hosts[host] = self.life();
            }
            Step::Sleep { host } => {
                self.lose(host);
                self.bury(host);
                self.hosts[host].id = self.id();
            }
        }
    }

    fn spent(&self) -> (u64, [u64; 2]) {
        let batch = WriteBatch::new(self.store.snapshot().unwrap(), self.clock.now_ms());
        let of_key = |key| {
            let spent: KeySpent = batch.kept(&rows::key_spend_key(key)).unwrap();
            spent.charged.at(self.clock.now_ms()).of(SpendWindow::Total)
        };
        (batch.workspace_spent(self.workspace).unwrap().charged_pico, self.keys.map(of_key))
    }

    /// What is spent and reserved is within the limits, but for the cost of one request.
    fn check(&self) {
        let (spent, [_, of_limited]) = self.spent();
        let intents = self.intents();
        let all: u64 = intents.iter().map(|intent| intent.amount_pico).sum();
        let of_key = intents.iter().filter(|intent| intent.key == self.keys[1]);
        let of_key: u64 = of_key.map(|intent| intent.amount_pico).sum();
        assert!(spent + all <= CREDIT + ESTIMATE_MAX, "{spent} + {all}");
        assert!(of_limited + of_key <= KEY_LIMIT + ESTIMATE_MAX, "{of_limited} + {of_key}");
    }

    /// Ends everything. Nothing stays reserved, and each request was counted once.
    fn end(mut self) {
        for host in 0..HOSTS {
            while !self.hosts[host].running.is_empty() {
                self.settle(host, 0, 100);
            }
            self.commit(host, false, |_| Ok(()));
            self.hosts[host].slices.close();
            self.keep(host);
        }
        self.check();
        assert!(self.intents().is_empty(), "something stays reserved");
        let rows = self.store.usage_rows(10_000).now().unwrap();
        let ids: BTreeSet<&str> = rows.iter().map(|row| &*row.request_id).collect();
        assert_eq!(ids.len(), rows.len(), "a row is there twice");
        assert_eq!(self.spent().0, rows.iter().map(|row| row.cost_pico).sum::<u64>());
        for row in &rows {
            assert_eq!(self.costs.get(&row.request_id), Some(&row.cost_pico), "{}", row.request_id);
        }
        for (request, _) in self.costs.iter().filter(|(request, _)| !self.lost.contains(*request)) {
            assert!(ids.contains(&**request), "{request} is not counted");
        }
        assert_eq!(self.store.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn slices_keep_within_the_limits_and_every_request_is_counted_once(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.check();
        }
        world.end();
    }
}

#[test]
fn a_request_whose_slice_suffices_needs_no_commit() {
    let mut world = World::new();
    world.begin(0, 0, 10);
    let before = world.store.status().seq;
    world.begin(0, 0, 10);
    assert_eq!(world.store.status().seq, before);
    assert_eq!(world.hosts[0].running.len(), 2);
    world.end();
}

#[test]
fn a_dead_host_is_charged_what_ran_when_its_slice_was_written() {
    let mut world = World::new();
    // The first request has an intent; the second and the third are in the slice that came with it.
    world.begin(0, 0, 50);
    world.settle(0, 0, 100);
    world.commit(0, false, |_| Ok(()));
    world.begin(0, 0, 20);
    world.begin(0, 0, 30);
    let is_slice = |row: &UsageRow| row.request_id.starts_with("slice_");
    world.settle(0, 1, 10);
    world.commit(0, false, |_| Ok(()));
    assert_eq!(world.spent().0, 53);
    world.lose(0);
    world.bury(0);
    let rows = world.store.usage_rows(10).now().unwrap();
    let charged: Vec<_> =
        rows.iter().filter(|row| is_slice(row)).map(|row| (row.cost_pico, row.outcome)).collect();
    assert_eq!(charged, [(20, UsageOutcome::Interrupted)]);
    assert_eq!(world.spent().0, 73);
    assert!(world.intents().is_empty(), "the rest is free");
    // Its request ends after all, and counts no more.
    world.hosts[0].id = world.id();
    world.end();
}

#[test]
fn a_request_that_leaves_a_slice_twice_in_one_commit_takes_nothing_from_others() {
    let mut world = World::new();
    world.begin(0, 0, 50);
    world.settle(0, 0, 100);
    world.commit(0, false, |_| Ok(()));
    world.begin(0, 0, 30);
    world.clock.advance(Duration::from_secs(7));
    world.begin(0, 0, 20);
    world.clock.advance(Duration::from_secs(3));
    world.keep(0);
    let amounts: Vec<_> = world.intents().iter().map(|it| (it.amount_pico, it.running_pico)).collect();
    assert_eq!(amounts, [(30, None), (20, Some(20))], "its own intent, and the slice of the other one");
    world.settle(0, 1, 100);
    world.commit(0, false, |_| Ok(()));
    assert_eq!(world.spent().0, 70);
    world.end();
}

#[test]
fn usage_of_a_workspace_with_a_damaged_intent_is_committed_and_no_more_is_reserved_ahead() {
    let mut world = World::new();
    // The first request has an intent; the second one is in the slice that came with it.
    world.begin(0, 0, 50);
    world.begin(0, 0, 20);
    let reserved_ahead = |world: &World| {
        let view = world.store.snapshot().unwrap();
        let key =
            SliceId { workspace: world.workspace, key: world.keys[0], host: world.hosts[0].id }.row_key();
        let row = view.row(rows::Keyspace::Keys, &key).unwrap().unwrap();
        rows::decode::<Intent>(view.keys(), rows::KEYS, &key, &row).unwrap().amount_pico
    };
    let before = reserved_ahead(&world);
    let damaged = rows::shared_intent_key(world.workspace, "damaged");
    let damage = move |batch: &mut WriteBatch| {
        batch.rows.insert(damaged.clone(), Some(vec![0; 64]));
        Ok(())
    };
    world.store.make(guarded([], damage)).unwrap();
    world.settle(0, 1, 100);
    world.commit(0, false, |_| Ok(())).unwrap();
    assert_eq!(world.spent().0, 20);
    assert!(reserved_ahead(&world) <= before);
}
