//! Migrations from every older schema give the same rows and schema as a fresh catalog.
//!
//! `testdata/schema_vN.sql` contains rows written by schema N. A new migration needs its own.

use super::*;
use crate::{Catalog, Filter, RoleFilter};
use refinery::Target;
use rusqlite::types::Value;
use safepoint_model::agent::WorkspaceKind;
use safepoint_model::checkpoint::{PartKind, Role};
use safepoint_model::plan::note::PlanNoteKind;
use safepoint_model::plan::state::PlanState;
use safepoint_model::rollback::RollbackState;
use safepoint_model::session::SessionStatus;
use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

fn testdata(version: i64) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/schema_v{version}.sql"));
    read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Creates a database of this schema version.
fn old_database(path: &Path, version: i64) {
    let mut connection = Connection::open(path).unwrap();
    let target = Target::Version(version.try_into().unwrap());
    migrations::runner().set_grouped(true).set_target(target).run(&mut connection).unwrap();
    assert_eq!(super::version(&connection, path).unwrap(), version, "each migration sets user_version");
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute_batch(&testdata(version)).unwrap();
}

fn rows(path: &Path, sql: &str) -> Vec<Vec<Value>> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map((), |row| (0..columns).map(|at| row.get(at)).collect()).unwrap();
    rows.map(Result::unwrap).collect()
}

fn schema(path: &Path) -> Vec<Vec<Value>> {
    rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")
}

#[test]
fn a_catalog_of_every_older_schema_arrives_whole() {
    for version in 1..=LATEST {
        let folder = tempfile::tempdir().unwrap();
        let (old, fresh) = (folder.path().join("old"), folder.path().join("fresh"));
        old_database(&old, version);
        let catalog = Catalog::open(&old).unwrap();
        Catalog::open(&fresh).unwrap();
        assert_eq!(schema(&old), schema(&fresh), "from schema {version}");
        let headers = "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id";
        assert_eq!(rows(&old, headers), rows(&fresh, headers), "from schema {version}");
        keeps_its_rows(&catalog);
        if version >= 3 {
            keeps_its_plan(&catalog);
        }
        if version >= 6 {
            keeps_its_session(&catalog);
        }
        if version >= 9 {
            keeps_its_choices(&catalog);
        }
        if version >= 10 {
            keeps_its_agents(&catalog);
        }
        if version >= 11 {
            keeps_its_turns(&catalog);
        }
        if version >= 12 {
            keeps_its_attribution(&catalog);
        }
        if version >= 14 {
            keeps_its_threads(&catalog);
        }
        if version >= 15 {
            keeps_its_attempts(&catalog);
        }
        if version >= 16 {
            keeps_its_remotes(&catalog);
        }
        if version >= 17 {
            keeps_its_deltas(&catalog);
        }
        if version >= 18 {
            keeps_what_a_remote_lacks(&catalog);
        }
        assert_eq!(catalog.check().unwrap(), Vec::<String>::new(), "from schema {version}");
    }
}

/// Checks the rows of every fixture.
fn keeps_its_rows(catalog: &Catalog) {
    let workspaces = catalog.workspaces().unwrap();
    // That of an attempt comes after the project.
    let projects: Vec<_> = workspaces.iter().filter(|it| it.kind != WorkspaceKind::Attempt).collect();
    assert_eq!(projects.len(), 1);
    let here = projects[0];
    assert_eq!((here.root.as_slice(), here.name.as_str()), (&b"/home/somebody/odd \xff"[..], "project"));
    let all = catalog.checkpoints(&Filter { role: RoleFilter::Any, ..Filter::default() }).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2].label.as_deref(), Some("before"));
    assert_eq!((all[2].progress.tests_passing, all[2].rollback_count, all[2].pinned), (42, 1, true));
    assert_eq!((all[1].role, all[0].role), (Some(Role::Safety), Some(Role::Rescue)));
    assert!(all.iter().all(|one| one.parts.len() == 1 && one.workspace_id == Some(here.id)));
    assert_eq!(here.head, Some(all[2].id));
    let rollbacks = catalog.rollbacks(here.id).unwrap();
    let states: Vec<_> = rollbacks.iter().map(|one| one.state).collect();
    assert_eq!(states, [RollbackState::Done, RollbackState::Refused]);
    assert_eq!((rollbacks[0].to, rollbacks[0].safety_checkpoint), (all[2].id, Some(all[1].id)));
    assert_eq!(rollbacks[0].rescued[0].checkpoint, all[0].id);
    assert_eq!(catalog.steps(rollbacks[0].id).unwrap().len(), 2);
    assert_eq!(catalog.verify_events().unwrap().whole, 9);
}

/// Checks the rows of fixtures with plans.
fn keeps_its_plan(catalog: &Catalog) {
    let record = catalog.plan("limits").unwrap().unwrap();
    let paths: Vec<&str> = record.plan.steps.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(paths, ["migrate", "api", "api/handlers"]);
    assert_eq!((record.plan.state, record.plan.decisions.len()), (PlanState::Failed, 1));
    assert_eq!((record.plan.context.len(), record.plan.outputs.len()), (1, 1));
    assert_eq!(catalog.plan_notes("limits").unwrap()[0].kind, PlanNoteKind::Error);
    assert_eq!(catalog.plan_checkpoints("limits").unwrap().len(), 1);
}

/// Checks the rows of fixtures with sessions.
fn keeps_its_session(catalog: &Catalog) {
    let sessions = catalog.sessions(Some(SessionStatus::Paused), None).unwrap();
    assert_eq!(sessions.len(), 1);
    let session = &sessions[0];
    assert_eq!(session.id.to_uuid(), "0193a6b4-8000-7000-8000-000000000001");
    assert_eq!(
        (session.request.as_str(), session.paused_from),
        ("Add rate limiting", Some(SessionStatus::Implementing))
    );
    assert_eq!(session.configuration["model"], "large");
    assert_eq!(session.git_context.as_ref().unwrap()["branch"], "main");
    let counted = session.statistics;
    assert_eq!((counted.tasks_completed, counted.tasks_failed, counted.decisions_made), (3, 1, 2));
    assert_eq!((counted.checkpoints_created, counted.error_recoveries), (4, 1));
    assert_eq!(session.duration_micros(session.updated_at), 9_000_000);
}

/// Rows of fixtures since schema 9: chosen parts of rollbacks.
fn keeps_its_choices(catalog: &Catalog) {
    let here = catalog.workspaces().unwrap()[0].id;
    let rollbacks = catalog.rollbacks(here).unwrap();
    assert_eq!((&*rollbacks[0].parts, &*rollbacks[1].parts), (&[PartKind::Files][..], &[][..]));
    assert_eq!(catalog.part_notes(rollbacks[0].id).unwrap().len(), 1);
}

/// Rows of fixtures since schema 10: bindings of agents.
fn keeps_its_agents(catalog: &Catalog) {
    let here = catalog.workspaces().unwrap()[0].id;
    let bound: Vec<_> = catalog.agents().unwrap().into_iter().map(|it| it.workspace_id).collect();
    assert_eq!(bound, [Some(here), None]);
}

/// Rows of fixtures since schema 11: turns of agents.
fn keeps_its_turns(catalog: &Catalog) {
    let here = catalog.workspaces().unwrap()[0].id;
    let turns = catalog.turns(here, None, None).unwrap();
    let told: Vec<_> = turns.iter().map(|turn| (turn.number, turn.prompt.as_str(), turn.changes)).collect();
    assert_eq!(told, [(2, "go on", None), (1, "make the tests pass", Some([3, 14, 1]))]);
    let open = catalog.open_turn(here, &turns[0].session_id).unwrap().unwrap();
    assert_eq!((open.number, open.not_covered.as_deref()), (2, Some("the disk is full")));
    assert!(catalog.hook_seen("claude").unwrap().is_some());
    let session = &turns[0].session_id;
    let notes = catalog.hook_notes(here, session).unwrap();
    assert_eq!(notes.len(), 1);
    catalog.write(|transaction| transaction.delete_hook_notes(session, &notes)).unwrap();
    assert!(catalog.hook_notes(here, session).unwrap().is_empty());
}

/// Rows of fixtures since schema 12: paths, tools and subagents of turns.
fn keeps_its_attribution(catalog: &Catalog) {
    let here = catalog.workspaces().unwrap()[0].id;
    let turn = catalog.turn(here, 1).unwrap().unwrap();
    assert_eq!(turn.named.iter().map(ToString::to_string).collect::<Vec<_>>(), ["src/main.rs"]);
    assert_eq!((turn.tools.len(), turn.subagents.as_slice()), (2, &["helper".to_owned()][..]));
}

/// Rows of fixtures since schema 14: threads.
fn keeps_its_threads(catalog: &Catalog) {
    let threads = catalog.read_threads::<_, CatalogError>(|rows| {
        let threads = rows.all_threads()?;
        let head = rows.head(threads[0].seq, "")?.unwrap();
        assert_eq!((head.id.as_str(), head.parent.as_deref(), head.is_head), ("s2", Some("s1"), true));
        assert_eq!(head.channels["messages"], ("v2".to_owned(), Some(3)));
        assert_eq!(rows.value(3)?.base, Some((2, 1)));
        assert_eq!(rows.writes(threads[0].seq, "", "s2")?.len(), 1);
        assert_eq!(rows.states(threads[0].seq)?.len(), 2);
        assert_eq!(rows.chunks()?.len(), 1);
        Ok(threads)
    });
    let threads = threads.unwrap();
    assert_eq!((threads[0].thread.key.id.as_str(), threads[0].thread.version), ("t1", 3));
}

/// Rows of fixtures since schema 17: a value that is the difference to another one.
fn keeps_its_deltas(catalog: &Catalog) {
    let value = catalog.read_threads(|rows| rows.value(4)).unwrap();
    assert!(value.is_delta());
    assert_eq!((value.base, value.depth, value.size, value.pieces), (Some((3, 0)), 2, 5, None));
}

/// Rows of fixtures since schema 15: attempts and metrics.
fn keeps_its_attempts(catalog: &Catalog) {
    let attempt = catalog.attempts_with_rooms().unwrap().remove(0);
    assert_eq!((attempt.name.as_str(), attempt.number, attempt.run.exit_status), ("try-1", 1, Some(0)));
    assert_eq!(catalog.attempt_at(attempt.place_id).unwrap().map(|it| it.id), Some(attempt.id));
    assert_eq!(catalog.waiting_metrics(attempt.place_id).unwrap()["accuracy"], 0.5);
}

/// Checks the rows of fixtures with remotes.
fn keeps_its_remotes(catalog: &Catalog) {
    let remote = catalog.remote("team").unwrap().unwrap();
    assert_eq!((remote.project.as_str(), remote.records.as_str()), ("shop", "postgres:///safepoint"));
    let here = catalog.workspaces().unwrap()[0].id;
    let line = catalog.remote_line("team", here).unwrap().unwrap();
    assert_eq!(line.state.unwrap()["seq"], 1);
    assert_eq!((line.pending, catalog.published("team", here).unwrap()[0].line), (None, line.line));
    assert_eq!(line.base.unwrap().0, catalog.published("team", here).unwrap()[0].checkpoint);
    assert_eq!(catalog.unpublished("team", here, 10).unwrap(), Vec::new());
    assert_eq!(catalog.unpublished("other", here, 10).unwrap().len(), 1);
}

/// Checks the rows of fixtures with lines that were left and purges to be delivered.
fn keeps_what_a_remote_lacks(catalog: &Catalog) {
    let here = catalog.workspaces().unwrap()[0].id;
    assert_eq!(catalog.left_lines("team", here).unwrap().len(), 1);
    let purges = catalog.remote_purges("team", here).unwrap();
    assert_eq!((purges.len(), purges[0].1.len()), (1, 2));
}

#[test]
fn migration_9_derives_what_older_rollbacks_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog");
    old_database(&path, 8);
    let choices = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/choices_v8.sql");
    Connection::open(&path).unwrap().execute_batch(&read_to_string(choices).unwrap()).unwrap();
    let catalog = Catalog::open(&path).unwrap();
    let here = catalog.workspaces().unwrap()[0].id;
    let parts: Vec<Vec<PartKind>> =
        catalog.rollbacks(here).unwrap().into_iter().map(|rollback| rollback.parts).collect();
    let expected = [
        vec![],
        vec![],
        vec![PartKind::Git],
        vec![PartKind::Session],
        vec![PartKind::Plan],
        vec![],
        vec![],
        vec![],
    ];
    assert_eq!(parts, expected);
}

#[test]
fn the_line_is_unbroken_and_ends_at_the_latest() {
    let mut versions: Vec<_> =
        migrations::runner().get_migrations().iter().map(|one| i64::from(one.version())).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=LATEST).collect::<Vec<_>>());
    let files = read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("migrations")).unwrap().count();
    assert_eq!(files, versions.len(), "every file in the folder is compiled in");
}

#[test]
fn a_migration_that_cannot_work_fails_at_once_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog");
    let mut connection = Connection::open(&path).unwrap();
    // Migration table with more entries than the program has.
    connection
        .execute_batch(
            "CREATE TABLE refinery_schema_history (version INT PRIMARY KEY, name TEXT, applied_on TEXT, checksum TEXT);
             INSERT INTO refinery_schema_history VALUES (7, 'other', '2026-01-01T00:00:00Z', '1')",
        )
        .unwrap();
    let before = schema(&path);
    let began = Instant::now();
    let error = run(&mut connection, &path).unwrap_err();
    assert!(matches!(error, CatalogError::Migrate { .. }), "{error}");
    assert!(began.elapsed() < PATIENCE / 2);
    assert_eq!(schema(&path), before);
}
