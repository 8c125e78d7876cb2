//! Servers that refuse, are full, die, or are cut off in the middle: the error names them, nothing is lost, and the next
//! command completes.

use crate::world::{Told, World, postgres, told};
use safepoint_testkit::proxy::{Fate, Proxy, Upstream};
use safepoint_testkit::servers::{Postgres, S3Server};
use serde_json::Value;
use std::time::{Duration, Instant};

fn seaweed() -> Option<S3Server> {
    let server = S3Server::seaweed().unwrap();
    if server.is_none() {
        eprintln!("LEFT OUT: tests with SeaweedFS, which is not installed; run: .ci/fleet --install");
    }
    server
}

/// Runs with another secret or a session token.
fn with(world: &World, variables: &[(&str, &str)], args: &[&str]) -> Told {
    let mut command = world.command("here", args);
    command.envs(variables.iter().copied());
    told(command)
}

#[test]
fn wrong_and_expired_credentials_are_refused_and_the_push_goes_on_later() {
    let (Some(postgres), Some(server)) = (postgres(), seaweed()) else { return };
    let world = World::new();
    world.create_database(postgres);
    let records = postgres.url("postgres", &world.database);
    world.add(&records, &server.url("credentials"));
    world.run("here", &["remote", "init", "team"]).assert_well();
    for variables in [
        &[("AWS_SECRET_ACCESS_KEY", "wrong")][..],
        &[("AWS_ACCESS_KEY_ID", "unknown")],
        // Keys of a session that is over, as a role gives them.
        &[("AWS_ACCESS_KEY_ID", "ASIAEXPIRED"), ("AWS_SESSION_TOKEN", "expired")],
    ] {
        with(&world, variables, &["push"]).assert_failed("remote_denied", 1);
    }
    // A password that expired: the role may not log in any more.
    let role = format!("r{}", world.database);
    postgres.sql("postgres", &format!("CREATE ROLE {role} NOLOGIN")).unwrap();
    world.add(&postgres.url(&role, &world.database), &server.url("credentials"));
    world.run("here", &["push"]).assert_failed("remote_denied", 1);
    world.add(&records, &server.url("credentials"));
    world.run("here", &["push"]).assert_well();
    world.assert_clones_equal();
}

#[test]
fn a_full_bucket_is_named_and_the_push_goes_on_later() {
    let (Some(postgres), Some(server)) = (postgres(), seaweed()) else { return };
    let world = World::new();
    world.create_database(postgres);
    let http = Proxy::start(Upstream::Http(server.port)).unwrap();
    world.add(&postgres.url("postgres", &world.database), &S3Server::url_at(http.port, "full"));
    world.run("here", &["remote", "init", "team"]).assert_well();
    // The bucket has a quota, and the server enforces it.
    http.set(|seen| match seen.verb.as_str() {
        "PUT" | "POST" => Fate::Answer(507, "<Error><Code>InsufficientStorage</Code></Error>"),
        _ => Fate::Pass,
    });
    let refused = world.run("here", &["push"]);
    refused.assert_failed("remote_full", 1);
    http.set(|seen| match seen.verb.as_str() {
        "PUT" | "POST" => Fate::Answer(403, "<Error><Code>QuotaExceeded</Code></Error>"),
        _ => Fate::Pass,
    });
    let refused = world.run("here", &["push"]);
    assert!(["remote_full", "remote_denied"].contains(&refused.code()), "{:#}", refused.answer);
    http.pass();
    let pushed = world.run("here", &["push"]);
    assert_eq!(pushed.answer["data"]["published"].as_array().map(Vec::len), Some(1), "{:#}", pushed.answer);
    world.assert_clones_equal();
}

#[test]
fn postgres_killed_and_restarted_in_the_middle_loses_nothing() {
    let Some(mut postgres) = Postgres::start(&["fsync=on", "shared_buffers=16MB"]).unwrap() else { return };
    let world = World::new();
    world.create_database(&postgres);
    let bytes = format!("file://{}", world.path("bytes").display());
    world.add(&postgres.url("postgres", &world.database), &bytes);
    world.run("here", &["remote", "init", "team"]).assert_well();
    let mut published = 0;
    for round in 0..5u64 {
        world.write("notes.txt", format!("round {round}\n"));
        world.run("here", &["create"]).assert_well();
        let mut command = world.command("here", &["push"]);
        command.env("SAFEPOINT_TEST_REMOTE_MS", "15000");
        let pushing = std::thread::spawn(move || told(command));
        std::thread::sleep(Duration::from_millis(20 * round));
        postgres.server.kill("KILL");
        // Local first: the remote away changes nothing here.
        world.write("src/main.rs", format!("// {round}\n"));
        world.run("here", &["create"]).assert_well();
        postgres.restart().unwrap();
        let pushed = pushing.join().unwrap();
        pushed.assert_well();
        published += pushed.answer["data"]["published"].as_array().map_or(0, Vec::len);
    }
    world.run("here", &["push"]).assert_well();
    let sql = "SELECT count(*), count(DISTINCT id), count(DISTINCT line) FROM safepoint.checkpoints";
    let rows = postgres.sql(&world.database, sql).unwrap();
    let counts: Vec<usize> = rows.split('|').map(|text| text.parse().unwrap()).collect();
    assert!(
        counts[0] == counts[1] && counts[2] == 1 && counts[0] >= published && published >= 5,
        "{rows} {published}"
    );
    world.assert_clones_equal();
}

#[test]
fn a_partition_each_way_ends_in_time_and_the_next_push_completes() {
    let (Some(postgres), Some(server)) = (postgres(), seaweed()) else { return };
    let world = World::new();
    world.create_database(postgres);
    let socket = postgres.socket().join(format!(".s.PGSQL.{}", postgres.port));
    let sql = Proxy::start(Upstream::Postgres(socket)).unwrap();
    let http = Proxy::start(Upstream::Http(server.port)).unwrap();
    let records = format!("postgres://postgres@127.0.0.1:{}/{}", sql.port, world.database);
    world.add(&records, &S3Server::url_at(http.port, "partition"));
    world.run("here", &["remote", "init", "team"]).assert_well();
    let mut published = 0;
    // Requests do not arrive, or answers do not return; of the records, or of the bytes.
    for (round, (proxy, fate)) in
        [(&sql, Fate::Lose), (&sql, Fate::LoseAnswer), (&http, Fate::Lose), (&http, Fate::LoseAnswer)]
            .into_iter()
            .enumerate()
    {
        world.write("notes.txt", format!("round {round}\n"));
        world.run("here", &["create"]).assert_well();
        proxy.set(move |_| fate);
        let began = Instant::now();
        world.run("here", &["push"]).assert_failed("unreachable", 1);
        assert!(began.elapsed() < Duration::from_secs(90), "{fate:?}: {:?}", began.elapsed());
        // Local first: the remote away changes nothing here.
        world.run("here", &["status"]).assert_well();
        proxy.pass();
        let pushed = world.run("here", &["push"]);
        pushed.assert_well();
        published += pushed.answer["data"]["published"].as_array().map_or(0, Vec::len);
    }
    let status = world.run("here", &["remote", "status"]);
    assert_eq!(status.answer["data"]["standing"]["unpublished"], Value::from(0));
    assert_eq!(published, 5);
    let sql = "SELECT count(*), count(DISTINCT id), count(DISTINCT line) FROM safepoint.checkpoints";
    assert_eq!(postgres.sql(&world.database, sql).unwrap(), "5|5|1");
    world.assert_clones_equal();
}
