//! Laws of upkeep: deletion hits only what no row names, and never what a push is about to name.

use crate::machine::{Machine, clone, clone_into, files, fresh, read_end, scratch};
use crate::world::{Place, World};
use safepoint_model::LineId;
use safepoint_model::progress::Silent;
use safepoint_remote::{
    Fence, ListPlan, LiveLease, PushDocument, PushedCheckpoint, Remote, RemoteError, RemotePolicy,
    ReplacedCheckpoint, UpkeepOptions, UpkeepReport,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Options that delete at once.
pub(crate) fn at_once() -> UpkeepOptions {
    let mut options = UpkeepOptions::default();
    options.grace = Duration::ZERO;
    options
}

/// Options that also forget superseded tokens.
pub(crate) fn for_good() -> UpkeepOptions {
    let mut options = at_once();
    options.late = Duration::ZERO;
    options
}

fn keep_last(count: u32) -> RemotePolicy {
    let mut policy = RemotePolicy::default();
    (policy.keep_last, policy.hourly_days, policy.daily_days) = (count, 0, 0);
    policy
}

pub(crate) fn run(remote: &Remote, options: &UpkeepOptions) -> UpkeepReport {
    let mut check = |checkpoint: &safepoint_remote::RemoteCheckpoint| clone(remote, checkpoint).map(|_| ());
    remote.upkeep(options, &mut check, &Silent).unwrap()
}

/// Names in the object store, and those of rows.
pub(crate) fn both(world: &World, remote: &Remote) -> (BTreeSet<String>, BTreeSet<String>) {
    let stored = remote.bytes().list(&format!("{}/", world.project)).unwrap();
    let stored = stored.into_iter().map(|object| object.name).collect();
    let sql = "SELECT DISTINCT p.name FROM safepoint.checkpoints c, unnest(c.packs) u (id) JOIN safepoint.packs p ON p.id = u.id";
    (stored, world.sql(sql).lines().map(str::to_owned).collect())
}

#[test]
fn upkeep_deletes_by_policy_and_leaves_what_rows_name() {
    for place in Place::ALL {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        remote.records().set_policy(&keep_last(2)).unwrap();
        let mut machine = Machine::new();
        let mut last = None;
        for round in 0..20 {
            last =
                Some(machine.publish(&remote, &files(&[("a", &round.to_string()), ("b", "same")])).unwrap());
        }
        let report = run(&remote, &at_once());
        assert_eq!(report.checkpoints, 18, "{place:?} {report:?}");
        assert!(report.deleted > 0 && report.condemned == report.deleted, "{report:?}");
        assert_eq!(report.checked.as_ref().unwrap().1, None);
        let (stored, named) = both(&world, &remote);
        assert_eq!(stored, named, "{place:?}");
        let head = remote.checkpoint(last.unwrap().id).unwrap();
        assert_eq!(clone(&remote, &head).unwrap(), files(&[("a", "19"), ("b", "same")]));
        assert_eq!(run(&remote, &at_once()).condemned, 0, "nothing is left to do");
    }
}

#[test]
fn condemned_packs_stay_for_the_grace_and_are_refused_at_once() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    let first = machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let from = remote.checkpoint(first.id).unwrap();
    // Another machine clones the first checkpoint, and will name its packs.
    let mut other = Machine::new();
    other.begin(&remote).unwrap();
    other.state.as_mut().unwrap().packs = from.packs.clone();
    clone_into(&remote, &from, &tempfile::tempdir().unwrap().path().join("s")).unwrap();
    let again = other.snapshot(&files(&[("a", "1")]));
    other.base = Some(again.clone());
    let next = machine.snapshot(&files(&[("a", "2")]));
    let pending = machine.build(&remote, &[next], Some(ListPlan::Whole)).unwrap();
    machine.send(&remote, &pending).unwrap();
    remote.records().delete(&[first.id]).unwrap();
    let report = run(&remote, &UpkeepOptions::default());
    assert_eq!((report.condemned, report.deleted), (1, 0));
    assert_eq!(both(&world, &remote).0.len(), 2, "the grace has not passed");
    let snapshot = other.snapshot(&files(&[("a", "1"), ("b", "new")]));
    let pending = other.build(&remote, &[snapshot], None).unwrap();
    let refused = other.send(&remote, &pending);
    assert!(matches!(refused, Err(RemoteError::Gone { .. })), "{refused:?}");
    // The client sends everything again.
    let published = other.publish(&remote, &files(&[("a", "1"), ("b", "new")])).unwrap();
    run(&remote, &at_once());
    let found = remote.checkpoint(published.id).unwrap();
    assert_eq!(clone(&remote, &found).unwrap(), files(&[("a", "1"), ("b", "new")]));
}

#[test]
fn a_pack_that_a_push_names_meanwhile_is_not_condemned() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    let first = machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let from = remote.checkpoint(first.id).unwrap();
    let mut other = Machine::new();
    other.begin(&remote).unwrap();
    other.state.as_mut().unwrap().packs = from.packs.clone();
    other.base = Some(other.snapshot(&files(&[("a", "1")])));
    let next = machine.snapshot(&files(&[("a", "2")]));
    let pending = machine.build(&remote, &[next], Some(ListPlan::Whole)).unwrap();
    machine.send(&remote, &pending).unwrap();
    remote.records().delete(&[first.id]).unwrap();
    // The commit of the push takes long, and the packs are condemned in that time.
    world.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
         CREATE TRIGGER slow AFTER INSERT ON safepoint.checkpoints FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let candidates = remote.records().candidates().unwrap();
    assert_eq!(candidates.len(), 1);
    let snapshot = other.snapshot(&files(&[("a", "1"), ("b", "new")]));
    let pending = other.build(&remote, std::slice::from_ref(&snapshot), None).unwrap();
    let condemned = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| world.remote().push(&pending.push, &pending.files(), &Silent));
        let in_insert = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while world.sql(in_insert) == "0" {
            assert!(!pushing.is_finished(), "{:?}", pushing.join());
        }
        let condemned = remote.records().condemn(&candidates).unwrap();
        pushing.join().unwrap().unwrap();
        condemned
    });
    assert_eq!(condemned, 0, "the push came first");
    run(&remote, &at_once());
    let found = remote.checkpoint(snapshot.id).unwrap();
    assert_eq!(clone(&remote, &found).unwrap(), files(&[("a", "1"), ("b", "new")]));
}

#[test]
fn uploads_that_were_never_published_are_deleted_after_a_takeover() {
    for place in [Place::Folder, Place::Seaweed] {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        let mut machine = Machine::new();
        machine.publish(&remote, &files(&[("a", "1")])).unwrap();
        let snapshot = machine.snapshot(&files(&[("a", "lost")]));
        let pending = machine.build(&remote, &[snapshot], None).unwrap();
        let pack = &pending.push.new[0];
        remote.bytes().put(&pack.name.to_string(), &pending.files[0], pack.bytes, &Silent).unwrap();
        assert_eq!(run(&remote, &at_once()).orphans, 0, "its writer may still publish it");
        let line = machine.state.as_ref().unwrap().line;
        remote.take_over(line, "new", 1, LiveLease::Broken).unwrap();
        let report = run(&remote, &UpkeepOptions::default());
        assert_eq!((report.orphans, report.deleted), (1, 0), "{report:?}");
        assert_eq!(run(&remote, &for_good()).deleted, 1);
        let (stored, named) = both(&world, &remote);
        assert_eq!(stored, named);
        assert_eq!(world.sql("SELECT count(*) FROM safepoint.sweeps"), "0", "its token is done");
        let late = machine.send(&remote, &pending);
        assert!(matches!(late, Err(RemoteError::Fenced { .. })), "{late:?}");
        // It uploaded its pack again before it was refused.
        let report = run(&remote, &for_good());
        assert_eq!((report.orphans, report.deleted), (1, 1), "{report:?}");
    }
}

#[test]
fn a_silent_writer_is_superseded_and_regains_its_line() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    world.sql("UPDATE safepoint.lines SET renewed_at = now() - interval '8 days'");
    run(&remote, &UpkeepOptions::default());
    let refused = machine.publish(&remote, &files(&[("a", "2")]));
    assert!(matches!(refused, Err(RemoteError::Fenced { .. })), "{refused:?}");
    machine.state = Some(remote.regain(machine.state.as_ref().unwrap(), "machine", fresh()).unwrap());
    machine.publish(&remote, &files(&[("a", "2")])).unwrap();
    assert_eq!(machine.state.as_ref().unwrap().seq, 2);
}

#[test]
fn a_project_over_its_quota_takes_nothing_until_there_is_room() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let mut policy = keep_last(1);
    policy.quota_bytes = Some(1000);
    remote.records().set_policy(&policy).unwrap();
    machine.publish(&remote, &files(&[("a", &"x7".repeat(300))])).unwrap();
    run(&remote, &at_once());
    assert!(remote.status().unwrap().over_quota);
    let refused = machine.publish(&remote, &files(&[("a", "3")]));
    assert!(matches!(refused, Err(RemoteError::OverQuota { .. })), "{refused:?}");
    policy.quota_bytes = None;
    remote.records().set_policy(&policy).unwrap();
    run(&remote, &at_once());
    machine.publish(&remote, &files(&[("a", "3")])).unwrap();
}

#[test]
fn what_was_purged_is_deleted_at_once_and_no_rebuild_returns_it() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    let first = machine.publish(&remote, &files(&[("a", "hunter2"), ("b", "1")])).unwrap();
    let row = remote.checkpoint(first.id).unwrap();
    let second = machine.publish(&remote, &files(&[("b", "2")])).unwrap();
    let second_row = remote.checkpoint(second.id).unwrap();
    let names: Vec<_> = second_row.packs.iter().map(|pack| pack.name.clone()).collect();
    let early = remote.purge_packs(&names);
    assert!(matches!(early, Err(RemoteError::StillListed { .. })), "{early:?}");
    // The checkpoints without the secret, on a line of the one who purges.
    let mut purger = Machine::of(machine.workspace);
    purger.begin(&remote).unwrap();
    for (row, text) in [(&row, "1"), (&second_row, "2")] {
        let clean = purger.snapshot(&files(&[("b", text)]));
        let mut document = PushDocument::new(purger.state.as_ref().unwrap());
        document.whole = true;
        let fields = json!({"label": "clean"});
        let checkpoint = PushedCheckpoint { id: row.id, record: clean.record, pinned: false, fields };
        document.replaced = vec![ReplacedCheckpoint { line: row.line, seq: row.seq, n: row.n, checkpoint }];
        let mut found = safepoint_remote::Reached::default();
        safepoint_remote::beyond_base(&purger.store, clean.tree, None, &|_| false, &mut found).unwrap();
        found.add_once(clean.record, &|_| false);
        let pending = purger.pack(&remote, document, found.into_objects(), &[]).unwrap();
        purger.send(&remote, &pending).unwrap();
    }
    remote.purge_packs(&names).unwrap();
    let check = |remote: &Remote| {
        for (id, text) in [(first.id, "1"), (second.id, "2")] {
            let found = remote.checkpoint(id).unwrap();
            assert_eq!(clone(remote, &found).unwrap(), files(&[("b", text)]));
            assert!(!found.packs.iter().any(|pack| names.contains(&pack.name)));
        }
    };
    check(&remote);
    let stored = remote.bytes().list("shop/").unwrap();
    assert!(!stored.iter().any(|object| names.iter().any(|name| name.to_string() == object.name)));
    remote.rebuild(&read_end, &scratch, &Silent).unwrap();
    check(&remote);
    // An empty database, too.
    let empty = crate::world::database(world.postgres, Some("safepoint_template"));
    let remote = world.remote_as(&world.postgres.url("postgres", &empty).parse().unwrap());
    remote.rebuild(&read_end, &scratch, &Silent).unwrap();
    check(&remote);
}

#[test]
fn a_rebuild_of_an_empty_database_restores_every_checkpoint() {
    for place in Place::ALL {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        let mut all = Vec::new();
        let mut machines: Vec<Machine> = (0..3).map(|_| Machine::new()).collect();
        for round in 0..20u8 {
            let machine = &mut machines[usize::from(round % 3)];
            let tree = files(&[("a", &round.to_string()), ("b", "same")]);
            all.push((machine.publish(&remote, &tree).unwrap().id, tree));
        }
        let empty = crate::world::database(world.postgres, Some("safepoint_template"));
        let remote = world.remote_as(&world.postgres.url("postgres", &empty).parse().unwrap());
        let report = remote.rebuild(&read_end, &scratch, &Silent).unwrap();
        assert_eq!((report.restored, report.lines, report.incomplete), (20, 3, 0), "{report:?}");
        for (id, tree) in &all {
            let found = remote.checkpoint(*id).unwrap();
            assert!(found.packs.iter().all(|pack| pack.objects > 0));
            assert_eq!(&clone(&remote, &found).unwrap(), tree, "{place:?}");
        }
        let again = remote.rebuild(&read_end, &scratch, &Silent).unwrap();
        assert_eq!((again.restored, again.incarnation), (0, report.incarnation + 1));
        let machine = &mut machines[0];
        let fenced = machine.publish(&remote, &files(&[("a", "next")]));
        assert!(matches!(fenced, Err(RemoteError::Fenced { .. })), "{fenced:?}");
        machine.state = Some(remote.regain(machine.state.as_ref().unwrap(), "m", fresh()).unwrap());
        machine.publish(&remote, &files(&[("a", "next")])).unwrap();
    }
}

#[test]
fn two_histories_after_a_restored_backup_are_both_kept() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let mut copy = machine.copy();
    let backup = world.postgres.dump(&world.database).unwrap();
    let lost = [
        machine.publish(&remote, &files(&[("a", "2")])).unwrap(),
        machine.publish(&remote, &files(&[("a", "3")])).unwrap(),
    ];
    let restored = crate::world::database(world.postgres, None);
    world.postgres.sql(&restored, &backup).unwrap();
    let remote = world.remote_as(&world.postgres.url("postgres", &restored).parse().unwrap());
    // A copy of the machine goes on in the restored database, unaware of the lost commits.
    let other = copy.publish(&remote, &files(&[("a", "other")])).unwrap();
    let report = remote.rebuild(&read_end, &scratch, &Silent).unwrap();
    assert_eq!(report.restored, 2, "{report:?}");
    for (id, text) in [(lost[0].id, "2"), (lost[1].id, "3"), (other.id, "other")] {
        let found = remote.checkpoint(id).unwrap();
        assert_eq!(clone(&remote, &found).unwrap(), files(&[("a", text)]));
    }
    let heads = remote.lines(Some(machine.workspace), None).unwrap();
    assert!(heads.len() >= 2, "{heads:?}");
}

#[test]
fn a_live_token_is_not_swept() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let state = machine.state.as_ref().unwrap();
    let fence = Fence { line: state.line, token: state.token };
    assert!(remote.records().note_orphans(fence, &[], Duration::ZERO).is_err());
    let unknown = Fence { line: LineId::from_bits(fresh()), token: 1 };
    assert!(remote.records().note_orphans(unknown, &[], Duration::ZERO).is_err());
}
