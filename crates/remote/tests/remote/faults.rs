//! Laws under faults of the network: whole requests are lost, repeated, delayed and delivered late.

use crate::machine::{Machine, clone, files, fresh};
use crate::world::{Place, World, rclone, seaweed, unique};
use safepoint_model::LineId;
use safepoint_model::progress::Silent;
use safepoint_remote::{LiveLease, Remote, RemoteError};
use safepoint_testkit::proxy::{Fate, Proxy, Seen, Upstream};
use safepoint_testkit::servers::S3Server;
use std::time::{Duration, Instant};

/// Remote behind two proxies.
struct Behind {
    world: World,
    sql: Proxy,
    http: Proxy,
}

impl Behind {
    fn new(server: &S3Server) -> Option<Self> {
        let mut world = World::new(Place::Folder)?;
        let socket = world.postgres.socket().join(format!(".s.PGSQL.{}", world.postgres.port));
        let sql = Proxy::start(Upstream::Postgres(socket)).unwrap();
        let http = Proxy::start(Upstream::Http(server.port)).unwrap();
        world.bytes = S3Server::url_at(http.port, &unique());
        Some(Self { world, sql, http })
    }

    fn remote(&self) -> Remote {
        let url = format!("postgres://postgres@127.0.0.1:{}/{}", self.sql.port, self.world.database);
        self.world.remote_as(&url.parse().unwrap())
    }

    fn seen(&self) -> Vec<Seen> {
        [self.http.take_seen(), self.sql.take_seen()].concat()
    }
}

fn servers() -> impl Iterator<Item = &'static S3Server> {
    [seaweed(), rclone()].into_iter().flatten()
}

#[test]
fn a_push_of_ten_edits_takes_two_requests() {
    for server in servers() {
        let Some(behind) = Behind::new(server) else { return };
        let remote = behind.remote();
        let mut machine = Machine::new();
        let mut tree: crate::machine::Files =
            (0..500).map(|n| (format!("d{}/f{n}", n % 20), vec![n as u8; 900])).collect();
        machine.publish(&remote, &tree).unwrap();
        for n in 0..10 {
            tree.insert(format!("d{n}/f{n}"), b"edited".to_vec());
        }
        behind.seen();
        let snapshot = machine.publish(&remote, &tree).unwrap();
        let seen = behind.seen();
        let verbs: Vec<&str> = seen.iter().map(|seen| seen.verb.as_str()).collect();
        assert_eq!(verbs, ["PUT", "SQL"], "{}: {seen:?}", server.name);
        assert_eq!(clone(&remote, &remote.checkpoint(snapshot.id).unwrap()).unwrap(), tree);
    }
}

#[test]
fn a_push_survives_any_fault_of_any_request() {
    let late = Duration::from_millis(30);
    for server in servers() {
        let Some(behind) = Behind::new(server) else { return };
        for fate in [Fate::Lose, Fate::LoseAnswer, Fate::Late(late), Fate::Twice, Fate::Delay(late)] {
            // The line begins, two pushes are uploaded and published.
            for k in 0..3 {
                let remote = behind.remote();
                let mut machine = Machine::new();
                let (http, sql) = (behind.http.take_seen().len(), behind.sql.take_seen().len());
                let _ = (http, sql);
                let at = |proxy: &Proxy| {
                    let first = std::sync::Mutex::new(None);
                    proxy.set(move |seen| {
                        let first = *first.lock().unwrap().get_or_insert(seen.number);
                        if seen.number - first == k { fate } else { Fate::Pass }
                    });
                };
                at(&behind.sql);
                at(&behind.http);
                machine.publish(&remote, &files(&[("a", "1")])).unwrap();
                let second = machine.publish(&remote, &files(&[("a", "2")])).unwrap();
                behind.sql.pass();
                behind.http.pass();
                behind.sql.settle();
                behind.http.settle();
                let row = remote.checkpoint(second.id).unwrap();
                assert_eq!((row.seq, row.packs.len()), (2, 2), "{} {fate:?} {k}", server.name);
                assert_eq!(clone(&remote, &row).unwrap(), files(&[("a", "2")]));
                let line = machine.state.as_ref().unwrap().line;
                let rows = behind
                    .world
                    .sql(&format!("SELECT count(*) FROM safepoint.checkpoints WHERE line = '{line}'"));
                assert_eq!(rows, "2", "{} {fate:?} {k}", server.name);
            }
        }
    }
}

#[test]
fn nothing_is_published_before_its_packs_are_answered() {
    for server in servers() {
        let Some(mut behind) = Behind::new(server) else { return };
        behind.world.patience = 1;
        let remote = behind.remote();
        let mut machine = Machine::new();
        machine.begin(&remote).unwrap();
        let snapshot = machine.snapshot(&files(&[("a", "1")]));
        let pending = machine.build(&remote, std::slice::from_ref(&snapshot), None).unwrap();
        // The server refuses: no retry of the client can help.
        behind.http.set(|_| Fate::Lose);
        let refused = remote.push(&pending.push, &pending.files(), &Silent);
        assert!(refused.as_ref().is_err_and(RemoteError::is_transient), "{refused:?}");
        assert_eq!(behind.world.sql("SELECT count(*) FROM safepoint.checkpoints"), "0", "{}", server.name);
        behind.http.pass();
        machine.send(&remote, &pending).unwrap();
        assert_eq!(clone(&remote, &remote.checkpoint(snapshot.id).unwrap()).unwrap(), files(&[("a", "1")]));
    }
}

#[test]
fn records_that_are_cut_off_are_reported_in_time_and_the_push_goes_on_later() {
    for server in servers().take(1) {
        for fate in [Fate::Lose, Fate::LoseAnswer] {
            let Some(mut behind) = Behind::new(server) else { return };
            behind.world.patience = 1;
            let remote = behind.remote();
            let mut machine = Machine::new();
            machine.begin(&remote).unwrap();
            let snapshot = machine.snapshot(&files(&[("a", "1")]));
            let pending = machine.build(&remote, std::slice::from_ref(&snapshot), None).unwrap();
            behind.sql.set(move |_| fate);
            let began = Instant::now();
            let refused = machine.send(&remote, &pending);
            assert!(refused.as_ref().is_err_and(RemoteError::is_transient), "{refused:?}");
            assert!(began.elapsed() < Duration::from_secs(20));
            behind.sql.pass();
            machine.send(&remote, &pending).unwrap();
            assert_eq!(behind.world.sql("SELECT count(*) FROM safepoint.checkpoints"), "1");
        }
    }
}

#[test]
fn a_publish_that_arrives_after_a_takeover_changes_nothing() {
    for server in servers().take(1) {
        let Some(mut behind) = Behind::new(server) else { return };
        behind.world.patience = 0;
        let remote = behind.remote();
        let mut machine = Machine::new();
        let first = machine.publish(&remote, &files(&[("a", "1")])).unwrap();
        let snapshot = machine.snapshot(&files(&[("a", "late")]));
        let pending = machine.build(&remote, &[snapshot], None).unwrap();
        behind.sql.set(|_| Fate::Late(Duration::from_millis(500)));
        let cut = machine.send(&remote, &pending);
        assert!(cut.as_ref().is_err_and(RemoteError::is_transient), "{cut:?}");
        let line = machine.state.as_ref().unwrap().line;
        let taken = behind.world.remote().take_over(line, "new", fresh(), LiveLease::Broken).unwrap();
        behind.sql.settle();
        assert_eq!(taken.head, Some(first.id), "the head that the takeover returned is final");
        assert_eq!(behind.world.remote().lines(None, None).unwrap()[0].head, Some(first.id));
        behind.sql.pass();
        assert!(matches!(machine.send(&remote, &pending), Err(RemoteError::Fenced { .. })));
    }
}

#[test]
fn postgres_that_is_killed_loses_no_published_checkpoint() {
    let settings = ["fsync=on", "shared_buffers=16MB"];
    let Some(mut postgres) = safepoint_testkit::servers::Postgres::start(&settings).unwrap() else { return };
    let url = postgres.url("postgres", "postgres").parse().unwrap();
    let project: safepoint_remote::ProjectName = "shop".parse().unwrap();
    let records =
        safepoint_remote::PostgresRecords::open(&url, project.clone(), &crate::world::environment()).unwrap();
    records.migrate().unwrap();
    records.create_project().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bytes = format!("file://{}", folder.path().display()).parse().unwrap();
    let options = safepoint_remote::RemoteOptions::new(project, url, bytes);
    let remote = Remote::open(&options, &crate::world::environment()).unwrap();
    let mut machine = Machine::new();
    machine.begin(&remote).unwrap();
    let mut published = Vec::new();
    for round in 0..4 {
        let tree = files(&[("a", &round.to_string())]);
        published.push((machine.publish(&remote, &tree).unwrap().id, tree));
        postgres.server.kill("KILL");
        postgres.restart().unwrap();
    }
    for (id, tree) in published {
        assert_eq!(clone(&remote, &remote.checkpoint(id).unwrap()).unwrap(), tree);
    }
    let _ = LineId::from_bits(0);
}
