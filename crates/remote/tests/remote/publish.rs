//! Laws of pushes: published means complete, and a line has one writer.

use crate::machine::{Files, Machine, clone, files, fresh, scratch};
use crate::world::{Place, World};
use safepoint_model::LineId;
use safepoint_model::progress::Silent;
use safepoint_remote::{LiveLease, RemoteError, RemoteFilter, SMALL_PACKS_MAX};

fn cloned(world: &World, id: safepoint_model::CheckpointId) -> Files {
    let remote = world.remote();
    clone(&remote, &remote.checkpoint(id).unwrap()).unwrap()
}

#[test]
fn a_published_checkpoint_clones_equal_on_every_server() {
    for place in Place::ALL {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        let mut machine = Machine::new();
        let mut all = Vec::new();
        let mut tree = files(&[("a.txt", "one"), ("src/b.txt", "two"), ("src/deep/c.txt", "three")]);
        for round in 0..4 {
            tree.insert(format!("src/new{round}.txt"), vec![round; 2000]);
            tree.insert("src/deep/c.txt".to_owned(), format!("three {round}").into_bytes());
            all.push((machine.publish(&remote, &tree).unwrap(), tree.clone()));
        }
        for (snapshot, expected) in &all {
            assert_eq!(&cloned(&world, snapshot.id), expected, "{place:?}");
        }
        let heads = RemoteFilter::heads(machine.workspace);
        let found = remote.checkpoints(&heads).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id, found[0].seq), (all[3].0.id, 4));
    }
}

#[test]
fn a_push_sends_what_the_base_does_not_reach() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    let mut tree: Files = (0..50).map(|n| (format!("d{n}/f.txt"), vec![n; 3000])).collect();
    machine.publish(&remote, &tree).unwrap();
    tree.insert("d7/f.txt".to_owned(), b"changed".to_vec());
    let snapshot = machine.snapshot(&tree);
    let pending = machine.build(&remote, &[snapshot], None).unwrap();
    // The chunk, its folder, the root, the record, and the push document.
    assert_eq!(pending.push.new[0].objects, 5);
    assert_eq!(pending.push.document.kept.len(), 1);
}

#[test]
fn large_pushes_are_sent_in_parts_and_several_packs() {
    for place in [Place::Seaweed, Place::Rclone] {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        let mut machine = Machine::new();
        let mut state = 7u64;
        // Incompressible: 20 MiB in one pack.
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .take(20 * 1024 * 1024)
        .collect();
        let tree: Files = [("large.bin".to_owned(), noise), ("small".to_owned(), b"x".to_vec())].into();
        let snapshot = machine.publish(&remote, &tree).unwrap();
        assert_eq!(cloned(&world, snapshot.id), tree, "{place:?}");
    }
}

#[test]
fn the_same_push_again_has_the_same_answer() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.begin(&remote).unwrap();
    let snapshot = machine.snapshot(&files(&[("a", "1")]));
    let pending = machine.build(&remote, &[snapshot], None).unwrap();
    for _ in 0..3 {
        machine.send(&world.remote(), &pending).unwrap();
    }
    assert_eq!(machine.state.as_ref().unwrap().seq, 1);
    assert_eq!(world.sql("SELECT count(*) FROM safepoint.checkpoints"), "1");
}

#[test]
fn of_two_copies_of_a_machine_one_publishes_and_the_other_is_fenced() {
    for place in [Place::Folder, Place::Rclone] {
        let Some(world) = World::new(place) else { continue };
        let remote = world.remote();
        let mut one = Machine::new();
        one.publish(&remote, &files(&[("a", "1")])).unwrap();
        let mut two = one.copy();
        let first = one.publish(&remote, &files(&[("a", "one")])).unwrap();
        let refused = two.publish(&remote, &files(&[("a", "two")]));
        assert!(matches!(refused, Err(RemoteError::Fenced { seq: 2, .. })), "{refused:?}");
        let state = two.state.clone().unwrap();
        let regained = remote.regain(&state, "two", fresh());
        assert!(matches!(regained, Err(RemoteError::Fenced { .. })), "another writer went on: {regained:?}");
        // Nothing is lost: it becomes a line of its own.
        two.state = None;
        two.base = None;
        let second = two.publish(&remote, &files(&[("a", "two")])).unwrap();
        assert_eq!(cloned(&world, first.id), files(&[("a", "one")]));
        assert_eq!(cloned(&world, second.id), files(&[("a", "two")]));
    }
}

#[test]
fn a_takeover_returns_the_final_head_and_fences_the_old_holder() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut old = Machine::new();
    let head = old.publish(&remote, &files(&[("a", "1")])).unwrap();
    let line = old.state.as_ref().unwrap().line;
    let live = remote.take_over(line, "new", 1, LiveLease::Respected);
    assert!(
        matches!(&live, Err(RemoteError::Live { holder, left, .. })
        if holder == "machine" && left.as_secs() > 30),
        "{live:?}"
    );
    let taken = remote.take_over(line, "new", 2, LiveLease::Broken).unwrap();
    assert_eq!(taken, remote.take_over(line, "new", 2, LiveLease::Broken).unwrap(), "the same request again");
    assert_eq!((taken.head, taken.seq, taken.packs.len()), (Some(head.id), 1, 1));
    assert_eq!(taken.token, old.state.as_ref().unwrap().token + 1);
    let late = old.publish(&remote, &files(&[("a", "late")]));
    assert!(matches!(late, Err(RemoteError::Fenced { .. })), "{late:?}");
    assert!(matches!(remote.renew(old.state.as_ref().unwrap()), Err(RemoteError::Fenced { .. })));
    let mut new = Machine::of(old.workspace);
    let cloned_head = remote.checkpoint(head.id).unwrap();
    let store = new.store.writer().unwrap();
    drop(store);
    let (tree, _) =
        crate::machine::clone_into(&remote, &cloned_head, tempfile::tempdir().unwrap().path()).unwrap();
    new.state = Some(taken);
    let next = new.publish(&remote, &tree).unwrap();
    assert_eq!(cloned(&world, next.id), tree);
    assert_eq!(remote.renew(new.state.as_ref().unwrap()).unwrap().seq, 2);
    remote.release(new.state.as_ref().unwrap()).unwrap();
    assert!(remote.take_over(line, "third", 3, LiveLease::Respected).is_ok(), "a released lease is free");
}

#[test]
fn small_packs_become_one_and_lists_stay_closed() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    let mut tree: Files = (0..20).map(|n| (format!("d{n}/f.txt"), vec![n; 500])).collect();
    let mut longest = 0;
    let mut last = None;
    for round in 0..40u8 {
        tree.insert(format!("d{}/f.txt", round % 20), vec![round; 700]);
        last = Some(machine.publish(&remote, &tree).unwrap());
        longest = longest.max(machine.state.as_ref().unwrap().packs.len());
    }
    assert!(longest <= SMALL_PACKS_MAX, "{longest}");
    assert_eq!(cloned(&world, last.unwrap().id), tree);
    let whole = RemoteFilter::whole(machine.workspace);
    assert!(remote.checkpoints(&whole).unwrap().len() >= 3);
}

#[test]
fn a_line_that_does_not_exist_is_reported() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let line = LineId::from_bits(fresh());
    assert!(matches!(remote.take_over(line, "me", 1, LiveLease::Respected), Err(RemoteError::NoLine { .. })));
    let mut machine = Machine::new();
    machine.begin(&remote).unwrap();
    world.sql("DELETE FROM safepoint.lines");
    let refused = machine.publish(&remote, &files(&[("a", "1")]));
    assert!(matches!(refused, Err(RemoteError::NoLine { .. })), "{refused:?}");
}

#[test]
fn a_database_restored_from_an_older_copy_is_noticed() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    machine.publish(&remote, &files(&[("a", "1")])).unwrap();
    let backup = world.postgres.dump(&world.database).unwrap();
    machine.publish(&remote, &files(&[("a", "2")])).unwrap();
    let restored = crate::world::database(world.postgres, None);
    world.postgres.sql(&restored, &backup).unwrap();
    let remote = world.remote_as(&world.postgres.url("postgres", &restored).parse().unwrap());
    let third = machine.snapshot(&files(&[("a", "3")]));
    let pending = machine.build(&remote, std::slice::from_ref(&third), None).unwrap();
    let refused = machine.send(&remote, &pending);
    assert!(
        matches!(refused, Err(RemoteError::Behind { remembered_seq: 2, found_seq: 1, .. })),
        "{refused:?}"
    );
    // The refused push is uploaded, so the rebuild restores it, too.
    let rebuilt = remote.rebuild(&crate::machine::read_end, &scratch, &Silent).unwrap();
    assert_eq!((rebuilt.incarnation, rebuilt.restored), (2, 2), "{rebuilt:?}");
    let fenced = machine.send(&remote, &pending);
    assert!(matches!(fenced, Err(RemoteError::Fenced { .. })), "{fenced:?}");
    assert_eq!(clone(&remote, &remote.checkpoint(third.id).unwrap()).unwrap(), files(&[("a", "3")]));
    // Its head is the one that it sent: it goes on with the same line.
    machine.regain(&remote, Some(&pending)).unwrap();
    assert!(machine.state.as_ref().unwrap().token > 1 << 32);
    let next = machine.publish(&remote, &files(&[("a", "4")])).unwrap();
    assert_eq!(clone(&remote, &remote.checkpoint(next.id).unwrap()).unwrap(), files(&[("a", "4")]));
}

#[test]
fn objects_of_kept_packs_bring_what_they_name() {
    let Some(world) = World::new(Place::Folder) else { return };
    let remote = world.remote();
    let mut machine = Machine::new();
    // A small pack has the chunk of `d/f`; the large one after it has the folder that names it.
    let mut tree = files(&[("d/f", "in a small pack")]);
    machine.publish(&remote, &tree).unwrap();
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u8
    });
    tree.insert("d/large".to_owned(), noise.take(9 * 1024 * 1024).collect());
    machine.publish(&remote, &tree).unwrap();
    let mut last = None;
    for round in 0..SMALL_PACKS_MAX {
        tree.insert("other".to_owned(), round.to_string().into_bytes());
        last = Some(machine.publish(&remote, &tree).unwrap());
    }
    let kept = machine.state.as_ref().unwrap().packs.len();
    assert!(kept < SMALL_PACKS_MAX, "the small packs became one: {kept}");
    assert_eq!(cloned(&world, last.unwrap().id), tree);
}
