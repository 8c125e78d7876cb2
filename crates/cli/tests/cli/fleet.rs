//! Fleets: plans that go on elsewhere, publishing without being asked, and purges that reach a remote. Two homes as two machines, a real
//! PostgreSQL, and a folder for the bytes. Without PostgreSQL a line on standard error names what was left out.

use crate::remote::Fleet;
use crate::sandbox::Sandbox;
use crate::schemas::{Judge, OF_FLEETS};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Three steps; the second one writes its fence, and goes on for long if `slow` exists.
const PLAN: &str = "title = 'Limits'\nid = 'limits'\n\
    [[step]]\nid = 'one'\nrun = 'echo 1 > one'\n\
    [[step]]\nid = 'two'\nidempotent = true\nrun = 'printenv SAFEPOINT_FENCE > fence; test ! -e slow || sleep 120'\n\
    [[step]]\nid = 'three'\nrun = 'echo 3 > three'\n";

/// The plan has done its first step on the first machine, and is published.
fn with_plan() -> Option<Fleet> {
    let fleet = Fleet::new()?;
    let here = &fleet.here;
    here.write("plan.toml", PLAN);
    fleet.run(here, &["plan", "new", "plan.toml"]);
    fleet.run(here, &["plan", "run", "limits", "--until", "one"]);
    fleet.run(here, &["plan", "checkpoint", "create", "limits", "-m", "after one"]);
    fleet.run(here, &["push"]);
    Some(fleet)
}

/// Ends every lease, as 60 seconds without a renewal do.
fn end_leases(fleet: &Fleet) {
    let sql = "UPDATE safepoint.lines SET renewed_at = renewed_at - interval '61 seconds'";
    fleet.postgres.sql(&fleet.database, sql).unwrap();
}

fn failure(answer: &Value) -> (&str, u64) {
    (answer["error"]["code"].as_str().unwrap_or("none"), answer["exit_code"].as_u64().unwrap())
}

const TAKE: [&str; 6] = ["plan", "takeover", "limits", "--remote", "team", "../taken"];

/// Starts the plan with its long step, and waits until that runs.
fn start_slowly(fleet: &Fleet) -> Child {
    fleet.here.write("slow", "");
    let mut command = fleet.command(&fleet.here, &["plan", "resume", "limits", "--json"]);
    command.env("SAFEPOINT_TEST_LEASE_MS", "3000").stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let fence = fleet.here.path("project/fence");
    let began = Instant::now();
    while !fs::read(&fence).is_ok_and(|text| text.ends_with(b"\n")) {
        assert!(began.elapsed() < Duration::from_secs(60), "the step did not begin");
        sleep(Duration::from_millis(50));
    }
    child
}

/// Waits for the end of a run that was fenced, and returns its answer.
fn fenced_end(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let messages = answer["messages"].to_string();
    assert!(messages.contains("the commands were ended"), "{answer:#}");
    assert_eq!(answer["data"]["plan"]["steps"][1]["state"], "interrupted", "{answer:#}");
    answer
}

#[test]
fn a_plan_that_is_taken_over_goes_on_there_and_is_refused_here() {
    let Some(fleet) = with_plan() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    let refused = fleet.json(there, &TAKE);
    assert_eq!(failure(&refused), ("lease_live", 11), "{refused:#}");
    assert!(refused["error"]["message"].as_str().unwrap().contains(" holds it for another "), "{refused:#}");
    assert!(!there.path("taken").exists());
    end_leases(&fleet);
    let taken = fleet.json(there, &TAKE);
    assert_eq!(
        (&taken["status"], &taken["data"]["takeover"]["token"]),
        (&"ok".into(), &2.into()),
        "{taken:#}"
    );
    let resumed = fleet.json(there, &["-C", "../taken", "plan", "resume", "limits"]);
    assert_eq!(resumed["data"]["plan"]["state"], "done", "{resumed:#}");
    let fence = fs::read_to_string(there.path("taken/fence")).unwrap();
    assert_eq!(taken["data"]["takeover"]["fence"], fence.trim_end());
    // The old machine is told where the plan went; its own work goes on, on a line of its own.
    for _ in 0..2 {
        let refused = fleet.json(here, &["plan", "resume", "limits"]);
        assert_eq!(failure(&refused), ("plan_elsewhere", 12), "{refused:#}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(" took line "), "{refused:#}");
        here.write("notes.txt", "still here\n");
        fleet.run(here, &["create", "-m", "still here"]);
        fleet.run(here, &["push"]);
    }
    assert!(!here.path("project/three").exists());
    let pushed = fleet.json(there, &["-C", "../taken", "push"]);
    assert_eq!(pushed["data"]["published"][0]["line"], taken["data"]["takeover"]["line"], "{pushed:#}");
    // A third machine finds the line on which the plan went on, not that of the old machine.
    end_leases(&fleet);
    let third = Sandbox::new();
    fleet.add(&third, "postgres");
    let again = fleet.json(&third, &TAKE);
    assert_eq!(
        again["data"]["takeover"]["fence"].as_str().unwrap(),
        fence.trim_end().replace(":2", ":3"),
        "{again:#}"
    );
    assert_eq!(fs::read_to_string(third.path("taken/fence")).unwrap(), fence);
}

#[test]
fn a_runner_whose_plan_is_taken_by_force_ends_its_commands() {
    let Some(fleet) = with_plan() else { return };
    let child = start_slowly(&fleet);
    assert_eq!(failure(&fleet.json(&fleet.there, &TAKE)), ("lease_live", 11));
    let taken = fleet.json(&fleet.there, &[&TAKE[..], &["--force"]].concat());
    assert_eq!(taken["status"], "ok", "{taken:#}");
    let began = Instant::now();
    fenced_end(child);
    assert!(began.elapsed() < Duration::from_secs(20));
    let answer = fleet.json(&fleet.here, &["plan", "resume", "limits"]);
    assert_eq!(failure(&answer), ("plan_elsewhere", 12), "{answer:#}");
    fs::remove_file(fleet.there.path("taken/slow")).ok();
    let resumed = fleet.json(&fleet.there, &["-C", "../taken", "plan", "resume", "limits"]);
    assert_eq!(resumed["data"]["plan"]["state"], "done", "{resumed:#}");
}

#[test]
fn a_runner_whose_renewals_are_not_answered_ends_its_commands() {
    let Some(fleet) = with_plan() else { return };
    let child = start_slowly(&fleet);
    allow(&fleet, false);
    let began = Instant::now();
    fenced_end(child);
    assert!(began.elapsed() < Duration::from_secs(30));
    // A remote that cannot be asked does not hold the plan up, and this is said.
    fs::remove_file(fleet.here.path("project/slow")).unwrap();
    let answer = fleet.json(&fleet.here, &["plan", "resume", "limits"]);
    allow(&fleet, true);
    assert_eq!(answer["data"]["plan"]["state"], "done", "{answer:#}");
    assert!(answer["messages"].to_string().contains("was not renewed"), "{answer:#}");
}

#[test]
fn a_takeover_that_failed_after_the_lease_goes_on() {
    let Some(fleet) = with_plan() else { return };
    end_leases(&fleet);
    let packs = packs_below(&fleet.bytes());
    let aside = |path: &PathBuf| path.with_extension("aside");
    packs.iter().for_each(|path| fs::rename(path, aside(path)).unwrap());
    let answer = fleet.json(&fleet.there, &TAKE);
    assert_eq!(answer["exit_code"], 13, "{answer:#}");
    packs.iter().for_each(|path| fs::rename(aside(path), path).unwrap());
    let answer = fleet.json(&fleet.there, &TAKE);
    assert_eq!(
        (&answer["status"], &answer["data"]["takeover"]["token"]),
        (&"ok".into(), &2.into()),
        "{answer:#}"
    );
}

fn packs_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(packs_below(&entry.path())),
            false => found
                .extend(Some(entry.path()).filter(|path| path.extension().is_some_and(|it| it == "pack"))),
        }
    }
    found
}

/// Writes `[remote]` of the configuration of a machine.
fn configure(sandbox: &Sandbox, text: &str) {
    fs::write(sandbox.path("home/config.toml"), format!("[remote]\n{text}\n")).unwrap();
}

/// Keeps everybody out of the records, or lets them in again.
fn allow(fleet: &Fleet, yes: bool) {
    let database = &fleet.database;
    let sql = format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {yes}");
    fleet.postgres.sql("postgres", &sql).unwrap();
    if !yes {
        let sql =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
        fleet.postgres.sql("postgres", &sql).unwrap();
    }
}

fn unpublished(fleet: &Fleet) -> u64 {
    let status = fleet.json(&fleet.here, &["remote", "status"]);
    status["data"]["standing"]["unpublished"].as_u64().unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_create_that_waits_ends_well_only_if_the_remote_has_the_checkpoint() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    here.write("notes.txt", "second\n");
    let created = fleet.json(here, &["create", "-m", "second", "--wait-remote"]);
    let place = &created["data"]["published"][0];
    assert_eq!((&created["exit_code"], &place["seq"]), (&0.into(), &1.into()), "{created:#}");
    assert_eq!(place["checkpoint"], created["data"]["checkpoint"]["id"]);
    assert_eq!(unpublished(&fleet), 0);
    // The remote is away: the checkpoint is here, and this is said.
    allow(&fleet, false);
    here.write("notes.txt", "third\n");
    let began = Instant::now();
    let created = fleet.json(here, &["create", "-m", "third", "--wait-remote=1s"]);
    assert!(began.elapsed() < Duration::from_secs(15));
    assert_eq!((&created["exit_code"], &created["status"]), (&3.into(), &"ok".into()), "{created:#}");
    assert_eq!(created["data"]["published"], Value::Array(Vec::new()));
    assert!(created["messages"].to_string().contains("kept here, not yet there"), "{created:#}");
    assert!(fleet.run(here, &["list"]).contains("third"));
    allow(&fleet, true);
    // The configuration asks for it, too. An unchanged state waits for the checkpoint that holds it.
    configure(here, "durability = 'remote'");
    let created = fleet.json(here, &["create"]);
    assert_eq!(
        (&created["data"]["unchanged"], &created["exit_code"]),
        (&true.into(), &0.into()),
        "{created:#}"
    );
    assert_eq!(created["data"]["published"][0]["seq"], 2, "{created:#}");
    fleet.run(here, &["remote", "remove", "team"]);
    let created = fleet.json(here, &["create", "-m", "fourth"]);
    assert_eq!(created["exit_code"], 3, "{created:#}");
    let refused = fleet.json(here, &["create", "-m", "fifth", "--wait-remote"]);
    assert_eq!(failure(&refused), ("no_remote", 10), "{refused:#}");
}

#[test]
fn checkpoints_are_published_without_being_asked_and_never_wait() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    configure(here, "every = '1s'");
    // A workspace that was never pushed stays here.
    here.write("notes.txt", "second\n");
    fleet.run(here, &["create", "-m", "second"]);
    sleep(Duration::from_secs(3));
    assert_eq!(unpublished(&fleet), 2);
    fleet.run(here, &["push"]);
    let rows = || {
        fleet
            .postgres
            .sql(&fleet.database, "SELECT count(*) || ' ' || max(seq) FROM safepoint.checkpoints")
            .unwrap()
    };
    for number in 0..6 {
        here.write("notes.txt", format!("{number}\n"));
        fleet.run(here, &["create", "-m", &format!("number {number}")]);
    }
    wait_until("checkpoints are not published", || rows().starts_with("8 "));
    // Several in one push.
    let pushes: u64 = rows().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(pushes < 7, "{pushes} pushes");
    // The program that publishes ends itself.
    let home = here.path("home").display().to_string();
    let is_running = || {
        let listed =
            Command::new("pgrep").args(["-f", &format!("{home} --quiet sync --after")]).output().unwrap();
        !listed.stdout.is_empty()
    };
    wait_until("the publishing program does not end", || !is_running());
    // The remote is away: `create` does not notice, and the checkpoint arrives later.
    allow(&fleet, false);
    here.write("notes.txt", "away\n");
    let began = Instant::now();
    let created = fleet.json(here, &["create", "-m", "away"]);
    assert_eq!(created["exit_code"], 0, "{created:#}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sleep(Duration::from_secs(2));
    allow(&fleet, true);
    wait_until("a checkpoint is not published later", || rows().starts_with("9 "));
    wait_until("the publishing program does not end", || !is_running());
}

#[test]
fn a_sync_tries_again_until_the_remote_answers() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    for number in 0..3 {
        here.write("notes.txt", format!("{number}\n"));
        fleet.run(here, &["create", "-m", &format!("number {number}")]);
    }
    allow(&fleet, false);
    let mut command = fleet.command(here, &["sync", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Longer than all attempts of one request.
    sleep(Duration::from_secs(6));
    allow(&fleet, true);
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let synced = &answer["data"]["synced"][0];
    assert_eq!(synced["published"].as_array().map(Vec::len), Some(4), "{answer:#}");
    assert!(synced["attempts"].as_u64().unwrap() > 1, "{answer:#}");
    assert_eq!(synced["packs"], 1, "many checkpoints in one push: {answer:#}");
    // It follows until it is interrupted.
    let mut command = fleet.command(here, &["sync", "team", "--follow", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    here.write("notes.txt", "followed\n");
    fleet.run(here, &["create", "-m", "followed"]);
    wait_until("a followed checkpoint is not published", || unpublished(&fleet) == 0);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["exit_code"], 0, "{answer:#}");
    assert_eq!(answer["data"]["synced"][0]["published"].as_array().map(Vec::len), Some(1), "{answer:#}");
}

#[test]
fn a_pull_brings_the_newest_work_of_other_machines() {
    let Some(fleet) = Fleet::new() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    fleet.run(here, &["push"]);
    let none = fleet.json(here, &["pull"]);
    assert_eq!((&none["exit_code"], &none["data"]["fetched"]), (&0.into(), &Value::Null), "{none:#}");
    fleet.run(there, &["clone", "team", "project", "../clone"]);
    fs::write(there.path("clone/notes.txt"), "there\n").unwrap();
    fleet.run(there, &["-C", "../clone", "create", "-m", "there"]);
    fleet.run(there, &["-C", "../clone", "push"]);
    here.write("notes.txt", "here\n");
    fleet.run(here, &["create", "-m", "here"]);
    fleet.run(here, &["push"]);
    let pulled = fleet.json(here, &["pull", "team"]);
    assert_eq!(pulled["data"]["fetched"]["checkpoint"]["label"], "there", "{pulled:#}");
    assert_eq!(here.read("notes.txt"), "here\n");
    fleet.run(here, &["rollback", "there"]);
    assert_eq!(here.read("notes.txt"), "there\n");
    assert!(fleet.run(here, &["pull"]).starts_with("Nothing new"));
    let own = fleet.json(there, &["-C", "../clone", "pull"]);
    assert_eq!(own["data"]["fetched"]["checkpoint"]["label"], "here", "{own:#}");
    let line = own["data"]["line"].as_str().unwrap();
    assert_eq!(fleet.json(there, &["-C", "../clone", "pull", "--line", line])["data"]["line"], *line);
}

#[test]
fn answers_of_commands_of_fleets_fit_their_schemas() {
    let Some(fleet) = with_plan() else { return };
    let mut judge = Judge::new();
    end_leases(&fleet);
    judge.see(&fleet.json(&fleet.there, &TAKE));
    for args in [&["sync"][..], &["pull"], &["create", "-m", "x", "--wait-remote"], &["sync", "team"]] {
        judge.see(&fleet.json(&fleet.here, args));
    }
    judge.see(&fleet.json(&fleet.there, &["-C", "../taken", "pull"]));
    for command in OF_FLEETS {
        assert!(judge.well.contains(command), "{command} failed: {:?}", judge.failed);
    }
}

#[test]
fn excluded_paths_stay_here_and_are_named() {
    let Some(fleet) = Fleet::new() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    configure(here, "exclude = ['.env', 'private/']");
    here.write(".env", "KEY=1");
    here.write("private/a/key", "secret");
    fleet.run(here, &["create", "-m", "with secrets"]);
    let pushed = fleet.json(here, &["push"]);
    assert_eq!(pushed["data"]["excluded"], serde_json::json!([".env", "private"]), "{pushed:#}");
    let told = fleet.run(there, &["clone", "team", "project", "../clone"]);
    assert!(told.contains("not here:") && told.contains(".env"), "{told}");
    assert!(!there.path("clone/.env").exists() && !there.path("clone/private").exists());
    assert_eq!(fs::read_to_string(there.path("clone/notes.txt")).unwrap(), "good\n");
    let valid = fleet.json(there, &["-C", "../clone", "validate", "--deep"]);
    assert_eq!(valid["data"]["is_valid"], true, "{valid:#}");
    assert!(fleet.run(here, &["cat", "@", ".env", "-q"]).starts_with("KEY=1"));
    // A rollback there does not remove what is left out.
    fs::write(there.path("clone/.env"), "KEY=2").unwrap();
    fs::write(there.path("clone/notes.txt"), "changed\n").unwrap();
    fleet.run(there, &["-C", "../clone", "rollback", "with secrets"]);
    assert_eq!(fs::read_to_string(there.path("clone/.env")).unwrap(), "KEY=2");
    // What a push left out cannot be left out of the next one because the base has it.
    configure(here, "");
    here.write("notes.txt", "later\n");
    fleet.run(here, &["create", "-m", "without patterns"]);
    let pushed = fleet.json(here, &["push"]);
    assert_eq!(pushed["data"]["excluded"], Value::Array(Vec::new()), "{pushed:#}");
    fleet.run(there, &["-C", "../clone", "pull"]);
    fleet.run(there, &["-C", "../clone", "rollback", "without patterns"]);
    assert_eq!(fs::read_to_string(there.path("clone/private/a/key")).unwrap(), "secret");
}

/// Two machines have published a file that is to be purged; the first one has three checkpoints, the second one.
fn with_secret() -> Option<(Fleet, Vec<PathBuf>)> {
    let fleet = Fleet::new()?;
    let (here, there) = (&fleet.here, &fleet.there);
    here.write("secret.txt", "hunter2\n");
    fleet.run(here, &["create", "-m", "with secret"]);
    fleet.run(here, &["push"]);
    fleet.run(there, &["clone", "team", "project", "../clone"]);
    fs::write(there.path("clone/notes.txt"), "there\n").unwrap();
    fleet.run(there, &["-C", "../clone", "create", "-m", "there"]);
    fleet.run(there, &["-C", "../clone", "push"]);
    here.write("notes.txt", "newer\n");
    fleet.run(here, &["create", "-m", "newer"]);
    fleet.run(here, &["push"]);
    let packs = packs_below(&fleet.bytes());
    Some((fleet, packs))
}

/// Clones every published checkpoint into a home of its own; none has the purged file, and all have the others.
fn has_no_secret(fleet: &Fleet) {
    for label in ["first", "with secret", "newer", "there"] {
        let third = Sandbox::new();
        fleet.add(&third, "postgres");
        let answer = fleet.json(&third, &["clone", "team", &format!("project@{label}"), "../x"]);
        assert_eq!(answer["status"], "ok", "{label}: {answer:#}");
        assert!(!third.path("x/secret.txt").exists(), "{label}");
        let notes = fs::read_to_string(third.path("x/notes.txt")).unwrap();
        let wanted = match label {
            "newer" => "newer\n",
            "there" => "there\n",
            _ => "good\n",
        };
        assert_eq!(notes, wanted, "{label}");
    }
}

#[test]
fn a_purge_reaches_published_checkpoints_and_a_rebuild_does_not_return_them() {
    let Some((fleet, old)) = with_secret() else { return };
    let here = &fleet.here;
    let mut judge = Judge::new();
    let purged = fleet.json(here, &["purge", "secret.txt", "--yes"]);
    judge.see(&purged);
    assert_eq!(purged["exit_code"], 0, "{purged:#}");
    let remote = &purged["data"]["remotes"][0];
    assert_eq!((&remote["checkpoints"], &remote["pending"]), (&4.into(), &false.into()), "{purged:#}");
    let left: Vec<_> = old.iter().filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    has_no_secret(&fleet);
    fleet.run(here, &["remote", "rebuild", "team", "--yes"]);
    has_no_secret(&fleet);
    // Work goes on, on the same line and on the other machine's.
    here.write("notes.txt", "after\n");
    fleet.run(here, &["create", "-m", "after"]);
    let pushed = fleet.json(here, &["push"]);
    assert_eq!(
        (&pushed["data"]["fenced"], &pushed["data"]["packs"]),
        (&Value::Null, &1.into()),
        "{pushed:#}"
    );
    fleet.run(&fleet.there, &["-C", "../clone", "pull"]);
    let status = fleet.json(here, &["remote", "status"]);
    judge.see(&status);
    assert_eq!(status["data"]["standing"]["purges"], Value::Array(Vec::new()), "{status:#}");
}

#[test]
fn a_purge_without_the_remote_is_delivered_by_the_next_push() {
    let Some((fleet, old)) = with_secret() else { return };
    let here = &fleet.here;
    allow(&fleet, false);
    let purged = fleet.json(here, &["purge", "secret.txt", "--yes"]);
    allow(&fleet, true);
    assert_eq!(
        (&purged["exit_code"], &purged["data"]["remotes"][0]["pending"]),
        (&3.into(), &true.into()),
        "{purged:#}"
    );
    let entries = fleet.json(here, &["show", "with secret", "--files"])["data"]["entries"].to_string();
    assert!(!entries.contains("secret.txt"), "{entries}");
    let status = fleet.json(here, &["remote", "status"]);
    assert_eq!(status["data"]["standing"]["purges"], serde_json::json!(["secret.txt"]), "{status:#}");
    assert!(fleet.run(here, &["push"]).contains("Purged 4 checkpoints on team"));
    let left: Vec<_> = old.iter().filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    has_no_secret(&fleet);
}

#[test]
fn turns_and_agents_travel_with_their_checkpoints() {
    let Some(fleet) = Fleet::new() else { return };
    let (here, there) = (&fleet.here, &fleet.there);
    crate::hooks::turn(here, "add a limit", "notes.txt", "limited\n");
    crate::hooks::turn(here, "fix the limit", "notes.txt", "fixed\n");
    here.write("helper.toml", "model = 'x'\n");
    fleet.run(here, &["agent", "register", "helper", "--config", "helper.toml"]);
    fleet.run(here, &["create", "-m", "after the turns"]);
    fleet.run(here, &["push"]);
    fleet.run(there, &["clone", "team", "project", "../clone"]);
    let turns = |sandbox: &Sandbox, at: &str| -> Vec<(u64, String, String)> {
        let listed = fleet.json(sandbox, &["-C", at, "list", "--turns"]);
        let turns = listed["data"]["turns"].as_array().unwrap().clone();
        let text = |turn: &Value, key: &str| turn[key].as_str().unwrap_or_default().to_owned();
        turns
            .iter()
            .map(|turn| (turn["turn"].as_u64().unwrap(), text(turn, "label"), text(turn, "agent")))
            .collect()
    };
    let wanted = turns(here, ".");
    assert_eq!(wanted.len(), 2, "{wanted:?}");
    assert_eq!(turns(there, "../clone"), wanted);
    // The same turn arrives once.
    here.write("notes.txt", "more\n");
    fleet.run(here, &["create", "-m", "more"]);
    fleet.run(here, &["push"]);
    fleet.run(there, &["-C", "../clone", "pull"]);
    assert_eq!(turns(there, "../clone"), wanted);
}

#[test]
fn retention_keeps_what_is_still_to_be_published() {
    let Some(fleet) = Fleet::new() else { return };
    let here = &fleet.here;
    fleet.run(here, &["push"]);
    allow(&fleet, false);
    let policy = "every = '1s'\n[retention]\nkeep_last = 1\nkeep_within = '1s'\nthin_daily_for = '1s'";
    configure(here, policy);
    for number in 0..3 {
        here.write("notes.txt", format!("{number}\n"));
        fleet.run(here, &["create", "-m", &format!("number {number}")]);
        sleep(Duration::from_millis(1500));
    }
    let told = fleet.run(here, &["prune", "--dry-run"]);
    assert!(told.contains("still to be published"), "{told}");
    let listed = fleet.run(here, &["list"]);
    assert!((0..3).all(|number| listed.contains(&format!("number {number}"))), "{listed}");
    allow(&fleet, true);
    wait_until("checkpoints are not published", || unpublished(&fleet) == 0);
    sleep(Duration::from_millis(1500));
    here.write("notes.txt", "last\n");
    let created = fleet.json(here, &["create", "-m", "last"]);
    assert!(!created["data"]["pruned"].as_array().unwrap().is_empty(), "{created:#}");
    let count = fleet.postgres.sql(&fleet.database, "SELECT count(*) FROM safepoint.checkpoints").unwrap();
    assert!(count.parse::<u64>().unwrap() >= 4, "{count}");
}

#[test]
fn a_clone_that_was_killed_can_be_repeated() {
    let Some(fleet) = Fleet::new() else { return };
    for number in 0..60 {
        fleet.here.write(&format!("data/{number}"), vec![number; 50_000]);
    }
    fleet.run(&fleet.here, &["create", "-m", "much"]);
    fleet.run(&fleet.here, &["push"]);
    let began = Instant::now();
    let first = Sandbox::new();
    fleet.add(&first, "postgres");
    fleet.run(&first, &["clone", "team", "project", "../clone"]);
    let whole = began.elapsed();
    let third = Sandbox::new();
    fleet.add(&third, "postgres");
    let mut left = 0;
    for round in 1..12u32 {
        let mut command = fleet.command(&third, &["clone", "team", "project", "../clone"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(whole * round / 12);
        child.kill().unwrap();
        child.wait().unwrap();
        left += u64::from(
            fs::read_dir(third.path(""))
                .unwrap()
                .flatten()
                .any(|it| it.file_name().to_string_lossy().contains(".clone-")),
        );
        if third.path("clone").exists() {
            break;
        }
    }
    if !third.path("clone").exists() {
        let answer = fleet.json(&third, &["clone", "team", "project", "../clone"]);
        assert_eq!(answer["status"], "ok", "{answer:#}");
    }
    assert!(
        !fs::read_dir(third.path(""))
            .unwrap()
            .flatten()
            .any(|it| it.file_name().to_string_lossy().contains(".clone-"))
    );
    let skip = [".git", ".safepoint"];
    let image = |path: PathBuf| safepoint_testkit::TreeImage::read(&path, &skip).unwrap();
    assert_eq!(image(first.path("clone")).difference(&image(third.path("clone"))), Vec::<String>::new());
    let status = fleet.json(&third, &["-C", "../clone", "status"]);
    assert_eq!(status["data"]["changes"], Value::Array(Vec::new()), "{status:#}");
    eprintln!("a killed clone left a folder aside in {left} rounds");
}

#[test]
fn the_doctor_checks_each_remote() {
    let Some(fleet) = Fleet::new() else { return };
    let told = fleet.json(&fleet.here, &["doctor"]);
    let of_remotes = |answer: &Value| -> Vec<(String, String)> {
        let checks = answer["data"]["checks"].as_array().unwrap().clone();
        let remotes = checks.iter().filter(|check| check["name"] == "remote");
        remotes.map(|it| (it["status"].to_string(), it["message"].to_string())).collect()
    };
    let found = of_remotes(&told);
    assert!(found.iter().all(|(status, _)| status == "\"ok\""), "{found:#?}");
    for wanted in ["answers, schema", "the clocks agree", "may read, publish", "conditional uploads"] {
        assert!(found.iter().any(|(_, message)| message.contains(wanted)), "{wanted}: {found:#?}");
    }
    allow(&fleet, false);
    let told = fleet.json(&fleet.here, &["doctor"]);
    allow(&fleet, true);
    assert_eq!(told["exit_code"], 3, "{told:#}");
    assert!(
        of_remotes(&told).iter().any(|(status, message)| status == "\"problem\"" && message.contains("team"))
    );
}
