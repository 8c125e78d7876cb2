//! Files that change while they are read.

use crate::place::{Answer, Place, assert_same, noise};
use safepoint_testkit::tree::Content;
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: u64 = 8;
const LARGE: usize = 2 << 20;

/// Creates checkpoints while `disturb` runs repeatedly, and verifies each with `check`.
fn while_it_changes(
    prepare: impl Fn(&Place),
    disturb: impl Fn(&Place, u64) + Sync,
    check: impl Fn(&Place, &Answer),
) {
    let place = Place::new();
    place.write("still", noise(1, LARGE));
    place.write("deep/still", "still");
    prepare(&place);
    let done = AtomicBool::new(false);
    let answers: Vec<Answer> = std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                disturb(&place, number);
            }
        });
        let answers = (0..ROUNDS).map(|_| place.run(&["create", "--kind", "manual"])).collect();
        done.store(true, Ordering::Relaxed);
        answers
    });
    let settled = place.create();
    let then = place.image();
    for answer in &answers {
        // Success, or reported partial success.
        assert!([0, 3].contains(&answer.exit), "{} {} {}", answer.what, answer.exit, answer.errors);
        let coverage = &answer.data()["checkpoint"]["coverage"];
        let told =
            coverage["unsettled"].as_array().unwrap().len() + coverage["skipped"].as_array().unwrap().len();
        assert!(answer.exit == 0 || told > 0, "{:#}", answer.json);
        place.rollback(answer.data()["checkpoint"]["id"].as_str().unwrap());
        assert_eq!(fs::read(place.file("still")).unwrap(), noise(1, LARGE));
        assert_eq!(place.read("deep/still"), "still");
        check(&place, answer);
    }
    place.rollback(&settled);
    assert_same(&place.image(), &then);
    place.is_whole();
}

fn is_unsettled(answer: &Answer) -> bool {
    !answer.data()["checkpoint"]["coverage"]["unsettled"].as_array().unwrap().is_empty()
}

#[test]
fn files_that_change_while_they_are_read() {
    while_it_changes(
        |place| place.write("busy", noise(2, LARGE)),
        |place, number| {
            use std::os::unix::fs::FileExt;
            let file = fs::File::options().write(true).open(place.file("busy")).unwrap();
            file.write_all_at(&number.to_le_bytes(), number % LARGE as u64).unwrap();
        },
        |place, answer| {
            // Numbers only overwrote others, except in the very last bytes.
            let size = fs::metadata(place.file("busy")).unwrap().len();
            assert!((LARGE as u64..LARGE as u64 + 8).contains(&size), "{size}");
            // A file that keeps changing is reported as unsettled, with exit code 3.
            assert_eq!(answer.exit == 3, is_unsettled(answer), "{:#}", answer.json);
        },
    );
}

#[test]
fn files_that_grow_while_they_are_read() {
    while_it_changes(
        |place| place.write("log", ""),
        |place, number| {
            let mut file = fs::File::options().append(true).open(place.file("log")).unwrap();
            writeln!(file, "{number:015}").unwrap();
            if number % 64 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        },
        |place, _| {
            // The captured log is a prefix, line by line.
            let log = place.read("log");
            for (number, line) in log.lines().enumerate() {
                assert!(format!("{number:015}").starts_with(line), "{number}: {line}");
            }
        },
    );
}

#[test]
fn files_that_vanish_while_they_are_read() {
    while_it_changes(
        |place| place.write("dir/empty", ""),
        |place, number| {
            let path = place.file(format!("dir/{}", number % 50));
            let folder = place.file(format!("dir/folder {}", number % 5));
            let _ = fs::remove_dir_all(&folder);
            let _ = fs::remove_file(&path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("file"), "whole").unwrap();
            fs::write(place.file("dir/fresh"), "whole").unwrap();
            fs::rename(place.file("dir/fresh"), path).unwrap();
        },
        |place, _| {
            for entry in fs::read_dir(place.file("dir")).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                if name.parse::<u64>().is_ok() {
                    assert_eq!(fs::read_to_string(entry.path()).unwrap(), "whole", "{name}");
                }
            }
        },
    );
}

#[test]
fn files_that_are_replaced_while_they_are_read() {
    while_it_changes(
        |place| place.write("replaced", vec![b'a'; LARGE]),
        |place, number| {
            let letter = b'a' + u8::try_from(number % 26).unwrap();
            fs::write(place.path("fresh"), vec![letter; LARGE]).unwrap();
            fs::rename(place.path("fresh"), place.file("replaced")).unwrap();
        },
        |place, _| {
            // One complete version: never the start of one with the end of another.
            let content = fs::read(place.file("replaced")).unwrap();
            assert!(content.len() == LARGE && content.iter().all(|byte| *byte == content[0]));
        },
    );
}

#[test]
fn files_that_turn_into_folders_and_links_while_they_are_read() {
    while_it_changes(
        |place| {
            place.write("turns", "file");
            fs::create_dir(place.path("outside")).unwrap();
            fs::write(place.path("outside/secret"), "secret").unwrap();
        },
        |place, number| {
            let path = place.file("turns");
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir_all(&path);
            match number % 3 {
                0 => fs::write(&path, "file").unwrap(),
                1 => place.write("turns/inside", "inside"),
                _ => std::os::unix::fs::symlink(place.path("outside"), &path).unwrap(),
            }
        },
        |place, answer| {
            let id = answer.data()["checkpoint"]["id"].as_str().unwrap();
            let shown = place.run(&["show", id, "--files"]).succeeds();
            assert!(!shown["entries"].to_string().contains("secret"), "the target of a link is not captured");
            assert_eq!(fs::read_to_string(place.path("outside/secret")).unwrap(), "secret");
        },
    );
}

#[test]
fn folders_that_are_renamed_while_they_are_read() {
    let files = ["a/one", "a/deep/two", "z/one", "z/deep/two", "m/n/three"];
    for round in 0..4 {
        while_it_changes(
            |place| files.iter().for_each(|file| place.write(file, *file)),
            |place, number| {
                let [a, z, t] = ["a", "z", "m/n/t"].map(|name| place.file(name));
                match (round, number % 2) {
                    // One path that moves, and two that are exchanged.
                    (0 | 1, 0) => fs::rename(&a, &t).unwrap(),
                    (0 | 1, _) => fs::rename(&t, &a).unwrap(),
                    _ => {
                        fs::rename(&a, &t).unwrap();
                        fs::rename(&z, &a).unwrap();
                        fs::rename(&t, &z).unwrap();
                    }
                }
                std::thread::sleep(std::time::Duration::from_micros(number % 5 * 100 * round));
            },
            |place, answer| {
                let mut found = Vec::new();
                for (path, node) in place.image().0 {
                    if matches!(node.content, Content::File { .. }) {
                        found.push(fs::read(place.file(str::from_utf8(&path).unwrap())).unwrap());
                    }
                }
                let all = files.iter().all(|file| found.iter().any(|content| content == file.as_bytes()));
                assert!(all || is_unsettled(answer), "{:#}", answer.json);
                assert_eq!(answer.exit == 3, is_unsettled(answer), "{:#}", answer.json);
            },
        );
    }
}
