//! Lost, old and damaged catalogs: nothing is collected by them, and the packs rebuild them.

use crate::bench::{Bench, assert_same, noise, open};
use crate::framework::World;
use safepoint::model::checkpoint::Role;
use safepoint::model::{CheckpointId, RelPath};
use safepoint::{
    CatalogStanding, CheckpointManager, CreateOptions, Depth, Error, Filter, Pinned, RoleFilter,
    RollbackOptions, Settings, Silent, Subject, SystemEnvironment, Thoroughness, Workspace,
};
use safepoint_testkit::TreeImage;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const CATALOG: [&str; 3] = ["catalog.db", "catalog.db-wal", "catalog.db-shm"];

fn lose_catalog(home: &Path) {
    for name in CATALOG {
        let _ = fs::remove_file(home.join(name));
    }
}

/// Copies the catalog.
fn copy_catalog(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    lose_catalog(to);
    for name in CATALOG {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// Moves the log into the file: an intact log would repair a damaged file.
fn empty_log(home: &Path) {
    let catalog = safepoint_catalog::Catalog::open(&home.join("catalog.db")).unwrap();
    catalog.empty_log().unwrap();
}

fn all(manager: &CheckpointManager) -> Vec<CheckpointId> {
    manager.checkpoints().list_ids(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap()
}

fn repaired(home: &Path) -> (CheckpointManager, safepoint::Repair) {
    let environment = Box::new(SystemEnvironment { actor: "tester".to_owned() });
    let (manager, opened) =
        CheckpointManager::open_for_repair(home, Settings::default(), environment, &Silent).unwrap();
    let mut repair = manager.upkeep().repair(&Silent).unwrap();
    if opened.kept_aside.is_some() {
        repair.catalog = opened;
    }
    assert!(repair.is_whole(), "{repair:?}");
    (manager, repair)
}

#[test]
fn a_rebuilt_catalog_binds_agents_again() {
    let world = World::new();
    let (home, root) = (world.bench.home(), world.bench.root());
    world.bench.manager.agents().register_at("claude", &[], &[], &root).unwrap();
    world.bench.create();
    world.create(&Subject::Framework);
    drop(world.bench.manager);
    lose_catalog(&home);
    let (manager, _) = repaired(&home);
    let bound = manager.agents().bound_to(here(&manager, &root).id).unwrap();
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[0].agent.name, "claude");
    assert_eq!(manager.agents().get("codex").unwrap().workspace_id, None);
}

fn here(manager: &CheckpointManager, root: &Path) -> Workspace {
    manager.workspaces().around(root).unwrap().unwrap()
}

/// Checks that all are intact and these restore exactly.
fn restores(manager: &CheckpointManager, root: &Path, images: &BTreeMap<CheckpointId, TreeImage>) {
    let validation = manager.upkeep().validate(None, Depth::Deep, &Silent).unwrap();
    assert!(validation.is_valid(), "{validation:?}");
    let workspace = here(manager, root);
    for (id, image) in images {
        manager.rollback(&workspace, *id, &RollbackOptions::default(), &Silent).unwrap();
        assert_same(&TreeImage::read(root, &[".git"]).unwrap(), image);
    }
}

/// Creates checkpoints with different content, the last without a change.
fn some(bench: &Bench, rounds: u64) -> BTreeMap<CheckpointId, TreeImage> {
    let mut images = BTreeMap::new();
    for round in 0..rounds {
        bench.write("file", noise(round, 5000));
        bench.write(&format!("dir/{round}"), "x");
        images.insert(bench.create().id, bench.image());
    }
    images.insert(bench.create().id, bench.image());
    images
}

#[test]
fn a_lost_catalog_is_noticed_and_nothing_is_collected() {
    let bench = Bench::new();
    let images = some(&bench, 4);
    assert_eq!(bench.manager.upkeep().catalog_standing(), CatalogStanding::Known);
    let (home, root) = (bench.home(), bench.root());
    lose_catalog(&home);
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::New);
    let workspace = manager.workspaces().register(&root).unwrap();
    bench.write("new", "since");
    let since = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
    for how in [Thoroughness::Usual, Thoroughness::Everything] {
        let refused = manager.upkeep().collect(how, &Silent);
        assert!(
            matches!(refused, Err(Error::OtherCatalog { standing: CatalogStanding::New })),
            "{refused:?}"
        );
    }
    let refused = manager.upkeep().purge(&workspace, &[RelPath::new("new").unwrap()], &Silent);
    assert!(matches!(refused, Err(Error::OtherCatalog { .. })), "{refused:?}");
    drop(manager);
    // It is reported until it is repaired.
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::New);
    drop(manager);
    let (manager, repair) = repaired(&home);
    assert_eq!(repair.catalog.found, CatalogStanding::New);
    assert_eq!((repair.catalog.restored.len(), repair.catalog.unknown.len()), (5, 4));
    assert_eq!(all(&manager).len(), 6);
    let listed = manager
        .checkpoints()
        .list(&Filter { workspace: Some(here(&manager, &root).id), ..Filter::default() })
        .unwrap();
    assert_eq!(listed.len(), 6, "old and new checkpoints share one workspace");
    assert_eq!(listed[0].id, since, "the newest is the last created");
    assert!(images.keys().chain([&since]).all(|id| listed.iter().any(|one| one.id == *id)));
    restores(&manager, &root, &images);
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    restores(&manager, &root, &images);
    drop(manager);
    assert_eq!(open(&home, Settings::default()).upkeep().catalog_standing(), CatalogStanding::Known);
}

#[test]
fn an_older_catalog_is_noticed_also_after_it_was_used() {
    let bench = Bench::new();
    let mut images = some(&bench, 2);
    let (home, root, saved) = (bench.home(), bench.root(), bench.home().with_extension("saved"));
    copy_catalog(&home, &saved);
    // One checkpoint is enough, even without changes.
    images.insert(bench.create().id, bench.image());
    drop(bench.manager);
    copy_catalog(&saved, &home);
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::Older);
    // It continues until it is longer than the lost one.
    let workspace = here(&manager, &root);
    for round in 0..6 {
        fs::write(root.join("fork"), round.to_string()).unwrap();
        let id = manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap().checkpoint.id;
        images.insert(id, TreeImage::read(&root, &[".git"]).unwrap());
    }
    assert!(matches!(
        manager.upkeep().collect(Thoroughness::Usual, &Silent),
        Err(Error::OtherCatalog { .. })
    ));
    drop(manager);
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::Older);
    drop(manager);
    let (manager, repair) = repaired(&home);
    assert_eq!(repair.catalog.restored.len(), 1);
    assert_eq!(all(&manager).len(), images.len());
    restores(&manager, &root, &images);
}

#[test]
fn a_catalog_that_is_behind_by_what_was_never_acknowledged_is_healthy() {
    let bench = Bench::new();
    some(&bench, 2);
    let (home, saved) = (bench.home(), bench.home().with_extension("saved"));
    copy_catalog(&home, &saved);
    let mark = fs::read(home.join("store/catalog")).unwrap();
    bench.write("more", "stored, and killed before the commit");
    bench.create();
    drop(bench.manager);
    copy_catalog(&saved, &home);
    fs::write(home.join("store/catalog"), mark).unwrap();
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::Known);
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    drop(manager);
    let (_, repair) = repaired(&home);
    assert_eq!(repair.catalog.restored, []);
}

#[test]
fn accepting_a_catalog_ends_the_refusal() {
    let bench = Bench::new();
    some(&bench, 2);
    let (home, root) = (bench.home(), bench.root());
    drop(bench.manager);
    lose_catalog(&home);
    let manager = open(&home, Settings::default());
    let workspace = manager.workspaces().register(&root).unwrap();
    manager.create(&workspace, &CreateOptions::default(), &Silent).unwrap();
    manager.upkeep().accept_catalog().unwrap();
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    drop(manager);
    let manager = open(&home, Settings::default());
    assert_eq!((manager.upkeep().catalog_standing(), all(&manager).len()), (CatalogStanding::Known, 1));
}

#[test]
fn what_was_deleted_or_purged_does_not_come_back() {
    for (flushed, collected) in [(false, false), (true, false), (true, true)] {
        let bench = Bench::new();
        bench.write("secret", noise(77, 4000));
        let images = some(&bench, 4);
        let ids: Vec<CheckpointId> = images.keys().copied().collect();
        bench.manager.checkpoints().pin(ids[3], Pinned::Yes).unwrap();
        bench.manager.checkpoints().delete(&ids[..2]).unwrap();
        bench.manager.upkeep().purge(&bench.workspace, &[RelPath::new("secret").unwrap()], &Silent).unwrap();
        bench.manager.checkpoints().delete(&ids[2..3]).unwrap();
        if flushed {
            bench.write("more", "a flush");
            bench.write("secret", "public");
            bench.create();
        }
        if collected {
            bench.manager.upkeep().collect(Thoroughness::Usual, &Silent).unwrap();
        }
        let (home, root) = (bench.home(), bench.root());
        let before = all(&bench.manager);
        drop(bench.manager);
        lose_catalog(&home);
        let (manager, repair) = repaired(&home);
        let mut back = repair.catalog.restored.clone();
        back.reverse();
        assert_eq!(back, before, "flushed {flushed}, collected {collected}");
        assert!(manager.checkpoints().get(ids[3]).unwrap().pinned, "the record includes later changes");
        let workspace = here(&manager, &root);
        fs::write(root.join("secret"), "public").unwrap();
        for id in before {
            manager.rollback(&workspace, id, &RollbackOptions::default(), &Silent).unwrap();
            assert!(fs::read(root.join("secret")).unwrap() == b"public", "the path was purged");
        }
    }
}

#[test]
fn tombstones_go_when_no_record_needs_them() {
    let bench = Bench::new();
    let ids: Vec<CheckpointId> = some(&bench, 6).into_keys().collect();
    bench.manager.checkpoints().delete(&ids[..5]).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let mut tombstones = 0;
    let dump = safepoint_store_documents(&bench.home());
    for document in &dump {
        tombstones += usize::from(document.contains("safepoint.tombstone"));
    }
    assert_eq!(tombstones, 0, "{dump:?}");
    assert_eq!(dump.iter().filter(|document| document.contains("safepoint.record")).count(), 2);
}

/// Returns every document in the packs, with a separate reader.
fn safepoint_store_documents(home: &Path) -> Vec<String> {
    let store = safepoint_store::Store::open(&home.join("store")).unwrap();
    let mut documents = Vec::new();
    store.documents(|_, bytes| documents.push(String::from_utf8_lossy(bytes).into_owned())).unwrap();
    documents
}

#[test]
fn a_damaged_catalog_is_kept_aside_and_rebuilt() {
    for damage in [0..100, 4096..20_000] {
        let bench = Bench::new();
        let images = some(&bench, 6);
        let (home, root) = (bench.home(), bench.root());
        bench.rollback(*images.keys().next().unwrap());
        drop(bench.manager);
        empty_log(&home);
        let mut bytes = fs::read(home.join("catalog.db")).unwrap();
        let end = damage.end.min(bytes.len());
        bytes[damage.start..end].fill(0x5a);
        fs::write(home.join("catalog.db"), &bytes).unwrap();
        let (manager, repair) = repaired(&home);
        let aside = repair.catalog.kept_aside.unwrap();
        assert_eq!(fs::read(&aside).unwrap(), bytes, "the damaged catalog is kept");
        assert_eq!(repair.catalog.restored.len(), images.len() + 1, "{damage:?}");
        let safety =
            manager.checkpoints().list(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap();
        assert!(safety.iter().any(|one| one.role == Some(Role::Safety)));
        restores(&manager, &root, &images);
        drop(manager);
        assert_eq!(open(&home, Settings::default()).upkeep().catalog_standing(), CatalogStanding::Known);
    }
}

#[test]
fn an_emergency_works_on_a_damaged_catalog_and_repair_brings_it_in() {
    let bench = Bench::new();
    let mut images = some(&bench, 2);
    let (home, root) = (bench.home(), bench.root());
    drop(bench.manager);
    empty_log(&home);
    fs::write(home.join("catalog.db"), b"not a database".repeat(1000)).unwrap();
    fs::write(root.join("last"), "words").unwrap();
    let environment = Box::new(SystemEnvironment { actor: "tester".to_owned() });
    let manager = CheckpointManager::open_beside_catalog(&home, Settings::default(), environment).unwrap();
    let workspace = manager.workspaces().register(&root).unwrap();
    let made = manager.create(&workspace, &CreateOptions::emergency("fire"), &Silent).unwrap().checkpoint;
    images.insert(made.id, TreeImage::read(&root, &[".git"]).unwrap());
    assert!(matches!(
        manager.upkeep().collect(Thoroughness::Everything, &Silent),
        Err(Error::OtherCatalog { .. })
    ));
    drop(manager);
    let (manager, repair) = repaired(&home);
    assert_eq!(repair.catalog.restored.len(), 4);
    let listed = manager
        .checkpoints()
        .list(&Filter { workspace: Some(here(&manager, &root).id), ..Filter::default() })
        .unwrap();
    assert_eq!((listed.len(), listed[0].label.as_deref()), (4, Some("fire")));
    restores(&manager, &root, &images);
}

#[test]
fn checkpoints_of_plans_agents_and_everything_come_back() {
    let world = World::new();
    let bench = &world.bench;
    let options = CreateOptions { plan_id: Some("work".to_owned()), ..CreateOptions::default() };
    let of_plan = bench.manager.create(&bench.workspace, &options, &Silent).unwrap().checkpoint;
    let whole = bench.manager.create(&Subject::Framework, &CreateOptions::default(), &Silent).unwrap();
    let before = world.everything();
    let plan = bench.manager.plans().get("work").unwrap().plan;
    let (home, root) = (bench.home(), bench.root());
    lose_catalog(&home);
    let (manager, repair) = repaired(&home);
    assert!(repair.catalog.restored.ends_with(&[of_plan.id, whole.checkpoint.id]), "{repair:?}");
    assert_eq!(manager.plans().get("work").unwrap().plan, plan);
    let agents: Vec<String> =
        manager.agents().list().unwrap().into_iter().map(|one| one.agent.name).collect();
    assert_eq!(agents, ["claude", "codex"]);
    fs::write(root.join("main.rs"), "broken").unwrap();
    fs::write(world.agents.join("memory/notes.md"), "forgotten").unwrap();
    manager.rollback(None, whole.checkpoint.id, &RollbackOptions::default(), &Silent).unwrap();
    for (now, then) in world.everything().iter().zip(&before) {
        assert_same(now, then);
    }
    let workspace = here(&manager, &root);
    manager.rollback(&workspace, of_plan.id, &RollbackOptions::default(), &Silent).unwrap();
}

#[test]
fn an_upgrade_writes_the_records_of_checkpoints_that_have_none() {
    let bench = Bench::new();
    let images = some(&bench, 70);
    let (home, root) = (bench.home(), bench.root());
    drop(bench.manager);
    // State left by a program without records: no records, no mark.
    let catalog = rusqlite::Connection::open(home.join("catalog.db")).unwrap();
    catalog.execute_batch("UPDATE checkpoints SET record = NULL").unwrap();
    drop(catalog);
    let _ = fs::remove_file(home.join("store/later"));
    let _ = fs::remove_file(home.join("store/catalog"));
    let manager = open(&home, Settings::default());
    assert_eq!(manager.upkeep().catalog_standing(), CatalogStanding::Known);
    manager.upkeep().collect(Thoroughness::Everything, &Silent).unwrap();
    let records = |home: &Path| {
        let documents = safepoint_store_documents(home);
        documents.iter().filter(|document| document.contains("safepoint.record")).count()
    };
    assert_eq!(records(&home), images.len());
    drop(manager);
    lose_catalog(&home);
    let (manager, repair) = repaired(&home);
    assert_eq!(repair.catalog.restored.len(), images.len());
    let some: BTreeMap<_, _> = images.into_iter().step_by(10).collect();
    restores(&manager, &root, &some);
}

#[test]
fn a_record_that_is_lost_is_reported_and_written_again() {
    let bench = Bench::new();
    some(&bench, 2);
    let (home, root) = (bench.home(), bench.root());
    drop(bench.manager);
    let catalog = rusqlite::Connection::open(home.join("catalog.db")).unwrap();
    catalog.execute_batch("UPDATE checkpoints SET record = zeroblob(32) WHERE seq = 1").unwrap();
    drop(catalog);
    let manager = open(&home, Settings::default());
    let validation = manager.upkeep().validate(None, Depth::Quick, &Silent).unwrap();
    assert_eq!((validation.damaged.len(), validation.restorable.len()), (1, 3), "{validation:?}");
    drop(manager);
    let (manager, _) = repaired(&home);
    restores(&manager, &root, &BTreeMap::new());
}

#[test]
fn a_process_whose_catalog_was_replaced_commits_nothing() {
    let bench = Bench::new();
    some(&bench, 1);
    lose_catalog(&bench.home());
    bench.write("file", "into the void");
    let refused = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent);
    let Err(error) = refused else { panic!("acknowledged a lost checkpoint") };
    assert_eq!(safepoint::Failure::from(&error).code, "catalog_replaced");
    assert!(bench.manager.upkeep().collect(Thoroughness::Everything, &Silent).is_err());
}
