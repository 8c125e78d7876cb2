//! Ten attempts at once on one project, with random edits, keeps and drops, and edits of the project itself. Each worker has files of
//! its own, and a line of its own in a file that all share and every keep merges. So a model knows the end: what every attempt that
//! was kept had, as its last edit left it; and of those that were dropped, what their checkpoints hold.

use crate::world::{Chance, Means, User, World};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ATTEMPTS: u64 = 10;
/// Time of an ordinary run. With `SAFEPOINT_PROOF=full` it is a minute.
const TIME: Duration = Duration::from_secs(10);
const FULL_TIME: Duration = Duration::from_secs(60);
/// Files of each worker.
const FILES: u64 = 4;

/// File in which each worker has a line.
const LINES: &str = "lines";
/// Distance of the lines of two workers: a change of neighbouring lines would be a conflict. All lines differ, so that a comparison has
/// one answer.
const BETWEEN: u64 = 4;

/// Content of the files of one worker in the project.
type Owned = BTreeMap<String, String>;

/// State that a worker expects at the end.
#[derive(Default)]
struct Expected {
    files: Owned,
    /// Its line of the shared file.
    line: Option<String>,
    kept: u64,
    dropped: u64,
    /// Keeps that were refused for the shared file.
    conflicts: u64,
}

/// Number of a worker's line, from 1.
fn line_of(worker: u64) -> u64 {
    worker * BETWEEN + 1
}

/// Starts, edits, keeps and drops until the time is over. Returns what it expects in the project.
fn work(world: &World, worker: u64, until: Instant) -> Expected {
    let (mut chance, mut expected) = (Chance(worker), Expected::default());
    let direct = format!("w{worker}-direct");
    for round in 0.. {
        if Instant::now() >= until {
            break;
        }
        let name = format!("w{worker}-{round}");
        let means = if worker % 5 == 4 { Means::Copy } else { Means::Best };
        let attempt = patient(world, &|| {
            let mut args = vec!["attempt", "start", name.as_str()];
            args.extend((means == Means::Copy).then_some("--copy"));
            world.answer(&args)
        })["attempt"]
            .clone();
        let (mut inside, mut line_inside) = (expected.files.clone(), expected.line.clone());
        for edit in 0..=chance.below(2) {
            let (file, text) = (format!("w{worker}-f{}", chance.below(FILES)), format!("{round}.{edit}"));
            let place = world.place(&attempt).display().to_string();
            let line = match chance.below(5) {
                4 => {
                    line_inside = Some(text.clone());
                    format!("cd {place}; sed -i '{}s/.*/{text}/' {LINES}", line_of(worker))
                }
                0 => {
                    inside.remove(&file);
                    format!("cd {place}; rm -f {file}")
                }
                _ => {
                    inside.insert(file.clone(), format!("{text}\n"));
                    format!("cd {place}; echo {text} > {file}")
                }
            };
            patient(world, &|| world.answer(&["attempt", "exec", &name, "--", "sh", "-c", &line]));
        }
        if chance.below(4) == 0 {
            // The project itself is edited while attempts are open.
            let text = format!("direct {round}\n");
            world.write(&direct, &text);
            expected.files.insert(direct.clone(), text.clone());
        }
        inside.remove(&direct);
        if chance.below(3) == 0 {
            let dropped = patient(world, &|| world.answer(&["attempt", "drop", &name]));
            let result = dropped["attempts"][0]["result"].as_str().unwrap();
            for (file, text) in &inside {
                let output = world.output(&["cat", result, file]);
                assert_eq!(String::from_utf8(output.stdout).unwrap(), *text, "{name} dropped: {file}");
            }
            expected.dropped += 1;
        } else {
            let kept = patient(world, &|| world.answer(&["attempt", "keep", &name, "--others", "open"]));
            if kept.is_null() {
                expected.conflicts += 1;
                patient(world, &|| world.answer(&["attempt", "drop", &name]));
                continue;
            }
            inside.extend(expected.files.remove_entry(&direct));
            (expected.files, expected.line) = (inside, line_inside);
            expected.kept += 1;
        }
    }
    expected
}

/// Repeats a command as long as another process holds the project. Null for a conflict in the shared file: an overlay shows the line of
/// another worker as it was at the edit, and since then that line changed again.
fn patient(_: &World, act: &dyn Fn() -> Value) -> Value {
    loop {
        let answer = act();
        match answer["error"]["kind"].as_str() {
            Some("busy") => std::thread::sleep(Duration::from_millis(20)),
            None => return answer["data"].clone(),
            Some("conflict") if answer["error"]["code"] == "attempt_conflict" => {
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.ends_with("both changed: lines"), "{answer:#}");
                return Value::Null;
            }
            Some(_) => panic!("{answer:#}"),
        }
    }
}

#[test]
fn ten_attempts_at_once_end_as_the_model_says() {
    let world = World::new(User::Own);
    for number in 0..50 {
        world.write(&format!("shared/{number}"), "shared\n");
    }
    let lines: String = (1..=line_of(ATTEMPTS)).map(|number| format!("line {number}\n")).collect();
    world.write(LINES, &lines);
    world.run(&["create"]);
    let is_full = std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full");
    let until = Instant::now() + if is_full { FULL_TIME } else { TIME };
    let results: Vec<Expected> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..ATTEMPTS)
            .map(|worker| {
                scope.spawn({
                    let world = &world;
                    move || work(world, worker, until)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let sum = |count: fn(&Expected) -> u64| -> u64 { results.iter().map(count).sum() };
    let (kept, dropped, conflicts) = (sum(|of| of.kept), sum(|of| of.dropped), sum(|of| of.conflicts));
    assert!(kept > 0, "no attempt was kept");
    let lines = world.read(LINES);
    let mut expected = Owned::new();
    for (worker, of) in (0..).zip(results) {
        let line = lines.lines().nth(usize::try_from(line_of(worker)).unwrap() - 1).unwrap();
        let untouched = format!("line {}", line_of(worker));
        assert_eq!(line, of.line.unwrap_or(untouched), "the line of worker {worker}");
        expected.extend(of.files);
    }
    assert_eq!(lines.lines().count() as u64, line_of(ATTEMPTS), "a line is missing or twice");
    for entry in std::fs::read_dir(world.project()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "shared" && name != LINES {
            assert_eq!(expected.remove(&name), Some(world.read(&name)), "{name}");
        }
    }
    assert!(expected.is_empty(), "missing in the project: {expected:?}");
    assert_eq!(world.rooms(), 0);
    assert_eq!(world.run(&["validate"])["is_valid"], true);
    eprintln!("{kept} attempts were kept, {dropped} dropped; {conflicts} keeps had a conflict");
}
