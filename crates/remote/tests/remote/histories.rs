//! Random histories by seed: machines that publish, crash, are copied, clone and take over, with upkeep in
//! between and a faulty network. A checker then compares everything with what was published.
//!
//! `SAFEPOINT_HISTORIES` sets the number of histories, `SAFEPOINT_SEED` runs a single one.

use crate::machine::{Files, Machine, Pending, Snapshot, clone, clone_into, fresh};
use crate::upkeep::{at_once, both, for_good, run};
use crate::world::{Place, World};
use safepoint_model::{CheckpointId, LineId};
use safepoint_remote::{ListPlan, LiveLease, Remote, RemoteError, RemotePolicy};
use safepoint_testkit::proxy::{Fate, Proxy, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const HISTORIES: u64 = 12;
const STEPS: u64 = 24;

/// Numbers by seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Machine with its folder.
struct Player {
    machine: Machine,
    files: Files,
    pending: Option<Pending>,
}

struct History<'w> {
    world: &'w World,
    remote: Remote,
    proxy: &'w Proxy,
    numbers: Numbers,
    players: Vec<Player>,
    /// Content of every checkpoint that was ever taken.
    contents: BTreeMap<CheckpointId, Files>,
    /// Acknowledged pushes: the last checkpoint of each.
    acknowledged: BTreeMap<(LineId, u64), CheckpointId>,
    candidates: Option<safepoint_remote::Candidates>,
    log: Vec<String>,
}

fn policy() -> RemotePolicy {
    let mut policy = RemotePolicy::default();
    (policy.keep_last, policy.hourly_days, policy.daily_days) = (2, 0, 0);
    policy
}

impl History<'_> {
    fn step(&mut self) {
        let who = self.numbers.below(self.players.len() as u64) as usize;
        let what = self.numbers.below(100);
        self.log.push(format!("{what} by {who}"));
        match what {
            0..=44 => self.edit_and_publish(who),
            45..=54 => self.crash_before_publishing(who),
            55..=64 => self.take_over(who),
            65..=72 => self.clone_another(who),
            73..=78 => self.copy_machine(who),
            79..=84 => self.candidates = Some(self.remote.records().candidates().unwrap()),
            85..=91 => {
                if let Some(candidates) = self.candidates.take() {
                    self.remote.records().condemn(&candidates).unwrap();
                }
            }
            92..=95 => {
                let _ = self.remote.records().delete_by_policy().unwrap();
            }
            _ => {
                let mut options = at_once();
                options.silent = if self.numbers.below(4) == 0 { Duration::ZERO } else { options.silent };
                let report = run(&self.remote, &options);
                assert_eq!(report.checked.and_then(|(_, damage)| damage), None, "upkeep found damage");
            }
        }
    }

    fn edit(&mut self, who: usize) -> Snapshot {
        for _ in 0..1 + self.numbers.below(3) {
            let path = format!("d{}/f{}", self.numbers.below(4), self.numbers.below(4));
            // Few different contents, so that objects are shared and come back.
            let content = vec![self.numbers.below(6) as u8; 40];
            self.players[who].files.insert(path, content);
        }
        let player = &self.players[who];
        let snapshot = player.machine.snapshot(&player.files);
        self.contents.insert(snapshot.id, player.files.clone());
        snapshot
    }

    fn edit_and_publish(&mut self, who: usize) {
        if self.players[who].pending.is_none() {
            let snapshot = self.edit(who);
            if !self.prepare(who, snapshot, None) {
                return;
            }
        }
        self.send(who);
    }

    fn prepare(&mut self, who: usize, snapshot: Snapshot, plan: Option<ListPlan>) -> bool {
        let plan = plan.or_else(|| (self.numbers.below(6) == 0).then_some(ListPlan::Whole));
        let player = &mut self.players[who];
        if let Err(error) = player.machine.begin(&self.remote) {
            assert!(error.is_transient(), "{error:?}");
            return false;
        }
        match player.machine.build(&self.remote, &[snapshot], plan) {
            Ok(pending) => player.pending = Some(pending),
            Err(error) => panic!("{error:?}"),
        }
        true
    }

    fn send(&mut self, who: usize) {
        let player = &mut self.players[who];
        let Some(pending) = player.pending.take() else { return };
        let snapshot = pending.push.document.checkpoints[0].id;
        match player.machine.send(&self.remote, &pending) {
            Ok(()) => {
                let state = player.machine.state.as_ref().unwrap();
                let before = self.acknowledged.insert((state.line, state.seq), snapshot);
                assert!(
                    before.is_none_or(|before| before == snapshot),
                    "two pushes were acknowledged as {} {}",
                    state.line,
                    state.seq
                );
            }
            Err(error) if error.is_transient() => player.pending = Some(pending),
            Err(RemoteError::Gone { .. }) => {
                let snapshot = self.edit(who);
                self.prepare(who, snapshot, Some(ListPlan::Whole));
                self.send(who);
            }
            Err(RemoteError::Fenced { .. }) => {
                // Regained after a silence, or a line of its own.
                let state = player.machine.state.clone().unwrap();
                match self.remote.regain(&state, "player", fresh()) {
                    Ok(state) => player.machine.state = Some(state),
                    Err(_) => (player.machine.state, player.machine.base) = (None, None),
                }
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn crash_before_publishing(&mut self, who: usize) {
        if self.players[who].pending.is_none() {
            let snapshot = self.edit(who);
            if !self.prepare(who, snapshot, None) {
                return;
            }
        }
        let player = &mut self.players[who];
        if let Some(pending) = &player.pending {
            let pack = &pending.push.new[0];
            let put = self.remote.bytes().put(
                &pack.name.to_string(),
                &pending.files[0],
                pack.bytes,
                &safepoint_model::progress::Silent,
            );
            put.unwrap();
        }
        // Half of the time the home is lost, too.
        if self.numbers.below(2) == 0 {
            self.players[who].pending = None;
        }
    }

    fn take_over(&mut self, who: usize) {
        let lines = self.remote.lines(None, None).unwrap();
        if lines.is_empty() {
            return;
        }
        let line = lines[self.numbers.below(lines.len() as u64) as usize].line;
        let taken = match self.remote.take_over(line, "player", fresh(), LiveLease::Broken) {
            Ok(taken) => taken,
            Err(error) => return assert!(error.is_transient(), "{error:?}"),
        };
        let acknowledged = self.acknowledged.range((line, 0)..=(line, u64::MAX)).next_back();
        if let Some(((_, seq), id)) = acknowledged {
            assert!(taken.seq >= *seq, "an acknowledged push is missing after a takeover");
            assert!(taken.seq > *seq || taken.head == Some(*id));
        }
        let mut machine = Machine::of(self.players[who].machine.workspace);
        let mut files = Files::new();
        if let Some(head) = taken.head {
            let folder = crate::machine::folder();
            let row = self.remote.checkpoint(head).unwrap();
            let (found, _) = clone_into(&self.remote, &row, folder.path()).unwrap();
            files = found;
            machine.base = Some(machine.snapshot(&files));
        }
        machine.state = Some(taken);
        self.players[who] = Player { machine, files, pending: None };
    }

    /// Begins a line from a published checkpoint, whose packs it names from then on.
    fn clone_another(&mut self, who: usize) {
        let filter = safepoint_remote::RemoteFilter::default();
        let rows = self.remote.checkpoints(&filter).unwrap();
        if rows.is_empty() {
            return;
        }
        let id = rows[self.numbers.below(rows.len() as u64) as usize].id;
        // Upkeep runs in this thread alone, so the row and its packs are there.
        let row = self.remote.checkpoint(id).unwrap();
        let folder = crate::machine::folder();
        let (files, _) = clone_into(&self.remote, &row, folder.path()).unwrap();
        let mut machine = Machine::new();
        if machine.begin(&self.remote).is_err() {
            return;
        }
        machine.state.as_mut().unwrap().packs = row.packs;
        machine.base = Some(machine.snapshot(&files));
        self.players[who] = Player { machine, files, pending: None };
    }

    fn copy_machine(&mut self, who: usize) {
        let to = self.numbers.below(self.players.len() as u64) as usize;
        if to != who {
            let machine = self.players[who].machine.copy();
            self.players[to] = Player { machine, files: self.players[who].files.clone(), pending: None };
        }
    }

    fn check(&mut self) {
        self.proxy.pass();
        self.proxy.settle();
        for who in 0..self.players.len() {
            self.send(who);
        }
        let lines = self.remote.lines(None, None).unwrap();
        for line in &lines {
            let last = self.acknowledged.range((line.line, 0)..=(line.line, u64::MAX)).next_back();
            if let Some(((_, seq), id)) = last {
                assert!(
                    line.seq > *seq || (line.seq == *seq && line.head == Some(*id)),
                    "a head was lost: {line:?} {seq} {id}"
                );
            }
        }
        let listed: BTreeSet<LineId> = lines.iter().map(|line| line.line).collect();
        assert!(self.acknowledged.keys().all(|(line, _)| listed.contains(line)), "a line was lost");
        let rows = self.remote.checkpoints(&safepoint_remote::RemoteFilter::default()).unwrap();
        for row in &rows {
            let full = self.remote.checkpoint(row.id).unwrap();
            let found = clone(&self.remote, &full).unwrap_or_else(|error| panic!("{}: {error}", row.id));
            assert_eq!(Some(&found), self.contents.get(&row.id), "{}", row.id);
        }
        // Every token is superseded, so all that no row names goes.
        let mut options = for_good();
        options.silent = Duration::ZERO;
        run(&self.remote, &options);
        let (stored, named) = both(self.world, &self.remote);
        assert_eq!(stored, named, "after upkeep the store holds what rows name");
    }
}

fn fate(number: u64, seed: u64) -> Fate {
    let mut numbers = Numbers(seed ^ number << 17);
    match numbers.below(40) {
        0 => Fate::Lose,
        1 => Fate::LoseAnswer,
        2 => Fate::Late(Duration::from_millis(numbers.below(40))),
        3 => Fate::Twice,
        _ => Fate::Pass,
    }
}

fn play(seed: u64) -> Result<u64, String> {
    let Some(mut world) = World::new(Place::Folder) else { return Ok(0) };
    world.patience = 0;
    let socket = world.postgres.socket().join(format!(".s.PGSQL.{}", world.postgres.port));
    let proxy = Proxy::start(Upstream::Postgres(socket)).unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port, world.database).parse().unwrap();
    let remote = world.remote_as(&url);
    remote.records().set_policy(&policy()).unwrap();
    // Only requests of writers meet faults: the test itself needs answers.
    proxy.set(move |seen| {
        let of_writer =
            ["publish_1", "begin_line_1", "takeover_1"].iter().any(|name| seen.target.contains(name));
        if of_writer { fate(seen.number, seed) } else { Fate::Pass }
    });
    let players =
        (0..3).map(|_| Player { machine: Machine::new(), files: Files::new(), pending: None }).collect();
    let mut history = History {
        world: &world,
        remote,
        proxy: &proxy,
        numbers: Numbers(seed),
        players,
        contents: BTreeMap::new(),
        acknowledged: BTreeMap::new(),
        candidates: None,
        log: Vec::new(),
    };
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            history.step();
        }
        history.check();
    }));
    match played {
        Ok(()) => Ok(history.acknowledged.len() as u64),
        Err(_) => Err(format!("seed {seed}: {:?}", history.log)),
    }
}

#[test]
fn random_histories_keep_every_law() {
    if let Ok(seed) = std::env::var("SAFEPOINT_SEED") {
        play(seed.parse().unwrap()).unwrap();
        return;
    }
    let count = std::env::var("SAFEPOINT_HISTORIES").map_or(HISTORIES, |text| text.parse().unwrap());
    let next = AtomicU64::new(1);
    let published = AtomicU64::new(0);
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > count || !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    match play(seed) {
                        Ok(pushes) => _ = published.fetch_add(pushes, Ordering::Relaxed),
                        Err(why) => failed.lock().unwrap().push(why),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
    eprintln!("{count} histories, {} acknowledged pushes, 0 violations", published.into_inner());
}
