//! Disks with little space: no mapped file can fail on a full disk, and a full disk is reported as such.

use crate::disks::{Mount, fill, lift_the_cap};
use crate::place::{Answer, Place, assert_same, noise, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Fills the disk with large and then small pieces, which can be freed again.
fn fill_in_pieces(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for (size, bytes) in [("large", 4 << 20), ("small", 64 << 10)] {
        let piece = noise(1, bytes);
        for number in 0.. {
            let written = fs::write(folder.join(format!("{size}-{number}")), &piece);
            if written.is_err() || number % 64 == 63 && !synced() {
                break;
            }
        }
        synced();
    }
}

fn synced() -> bool {
    Command::new("sync").status().is_ok_and(|status| status.success())
}

fn free_pieces(folder: &Path, count: usize) {
    let is_small = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("small");
    let pieces = fs::read_dir(folder).unwrap().map(Result::unwrap).filter(is_small);
    pieces.take(count).for_each(|entry| fs::remove_file(entry.path()).unwrap());
    synced();
}

/// Here even an overwritten page needs space, which killed processes (SIGBUS).
#[test]
fn a_disk_that_writes_nothing_in_place_and_is_full_at_any_moment() {
    let name = "a_disk_that_writes_nothing_in_place_and_is_full_at_any_moment";
    let Some(mount) = Mount::small_btrfs(112 << 20) else {
        return skip(name, "it takes mkfs.btrfs and the right to mount");
    };
    let place = Place::at(&mount.path());
    let filler = mount.path().join("filler");
    place.write("file", noise(1, 100_000));
    let first = place.create();
    lift_the_cap(&place.path("home"));
    let then = place.image();
    let (mut done, mut full) = (0, 0);
    for round in 0..10 {
        for number in 0..6 {
            place.write(format!("changes/{number}"), noise(round * 100 + number, 9_000));
        }
        place.write("file", noise(round, 100_000));
        let now = place.image();
        fill_in_pieces(&filler);
        free_pieces(&filler, usize::try_from(round).unwrap());
        let mut is = now;
        for args in [
            &["create", "--kind", "manual"][..],
            &["status"],
            &["rollback", &first],
            &["undo", "--yes"],
            &["gc"],
            &["list"],
        ] {
            let answer = place.run(args);
            assert!(answer.exit < 128, "killed by a signal: {round} {args:?} {}", answer.errors);
            match answer.exit {
                0 => done += 1,
                // There is nothing to undo where the rollback did not happen.
                10 if args[0] == "undo" => {}
                _ => {
                    let code = answer.is_a_clear_error();
                    let known = ["disk_full", "rollback_failed", "unfinished"];
                    assert!(known.contains(&code), "{round} {args:?} {}", answer.errors);
                    assert!(!answer.errors.contains("disk I/O error"), "{round} {args:?} {}", answer.errors);
                    full += 1;
                }
            }
            match (args[0], answer.exit) {
                ("rollback", 0) => is = then.clone(),
                ("undo", 0) => is = place.image(),
                _ => {}
            }
        }
        fs::remove_dir_all(&filler).unwrap();
        synced();
        place.run(&["recover"]).succeeds();
        assert_same(&place.image(), &is);
        // The next writer truncates the unfinished data of the previous one.
        place.create();
        place.is_whole();
    }
    eprintln!("btrfs: {done} done, {full} refused because the disk was full, 0 ended by a signal");
    assert!(done > 0 && full > 0);
}

#[test]
fn a_home_with_little_room_maps_no_file() {
    let Some(mount) = Mount::memory("32m") else {
        return skip("a_home_with_little_room_maps_no_file", "it takes the right to mount");
    };
    let place = Place::at(&mount.path());
    place.write("file", "1");
    let id = place.create();
    place.write("file", "2");
    place.create();
    place.rollback(&id);
    place.run(&["undo", "--yes"]).succeeds();
    place.run(&["gc"]).succeeds();
    place.is_whole();
    for name in ["catalog.db-shm", "store/index.db-shm"] {
        assert!(!place.path("home").join(name).exists(), "{name}");
    }
    // With space again everything works as usual.
    assert!(
        Command::new("mount").args(["-o", "remount,size=256m"]).arg(mount.path()).status().unwrap().success()
    );
    place.rollback(&id);
    assert!(place.path("home/catalog.db-shm").exists());
    place.is_whole();
}

#[test]
fn processes_in_a_home_with_little_room_take_turns() {
    let Some(mount) = Mount::memory("48m") else {
        return skip("processes_in_a_home_with_little_room_take_turns", "it takes the right to mount");
    };
    let place = Place::at(&mount.path());
    place.write("file", "1");
    place.create();
    lift_the_cap(&place.path("home"));
    let projects: Vec<_> = (0..4).map(|number| place.path(format!("project-{number}"))).collect();
    let done: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = projects
            .iter()
            .map(|project| {
                let place = &place;
                scope.spawn(move || {
                    fs::create_dir(project).unwrap();
                    let mut done = 0;
                    for round in 0..6 {
                        fs::write(project.join("file"), noise(round, 5_000)).unwrap();
                        let args = ["--json", "create"];
                        let output = place.command(&args).current_dir(project).output().unwrap();
                        let answer = Answer::of(&args, &output);
                        match answer.exit {
                            0 => done += 1,
                            _ => answer.fails(11, "busy"),
                        }
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let listed = place.run(&["list", "--all", "-n", "1000"]).succeeds();
    assert_eq!(
        listed["checkpoints"].as_array().unwrap().len(),
        done + 1,
        "every acknowledged checkpoint exists"
    );
    assert!(done > 12, "{done} of 24 succeeded");
    place.is_whole();
}

#[test]
fn a_disk_without_room_for_one_more_file_is_full() {
    let Some(mount) = Mount::memory("12m,nr_inodes=64") else {
        return skip("a_disk_without_room_for_one_more_file_is_full", "it takes the right to mount");
    };
    let place = Place::new();
    place.write("file", "1");
    for spare in 0..24 {
        let mut number = 0;
        while fs::write(mount.path().join(format!("filler-{number}")), "").is_ok() {
            number += 1;
        }
        for freed in 0..spare.min(number) {
            fs::remove_file(mount.path().join(format!("filler-{freed}"))).unwrap();
        }
        let args = ["--json", "create"];
        let mut command = place.command(&args);
        let answer =
            Answer::of(&args, &command.env("SAFEPOINT_HOME", mount.path().join("home")).output().unwrap());
        match answer.exit {
            0 => {}
            _ => answer.fails(1, if spare == 0 { answer.is_a_clear_error() } else { "disk_full" }),
        }
        fs::remove_dir_all(mount.path().join("home")).unwrap_or_default();
    }
}

/// `ulimit -f`: the kernel sends a signal, which ended the process.
#[test]
fn a_limit_on_the_length_of_files_is_an_error_and_not_a_signal() {
    let place = Place::new();
    place.write("file", noise(1, 300_000));
    let id = place.create();
    place.write("file", noise(2, 300_000));
    let limited = |bytes: u64, args: &[&str]| {
        let args = [&["--json"], args].concat();
        let plain = place.command(&args);
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={bytes}")).arg("--").arg(plain.get_program()).args(&args);
        command.env_clear().current_dir(place.project());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Answer::of(&args, &command.output().unwrap())
    };
    let mut refused = 0;
    for bytes in [0, 100, 4_096, 20_000, 40_000, 100_000, 200_000, 400_000, 1_000_000] {
        for args in [&["create", "--kind", "manual"][..], &["rollback", &id], &["status"]] {
            let now = place.image();
            let answer = limited(bytes, args);
            eprintln!("{bytes} {args:?}: exit {} {}", answer.exit, answer.errors);
            assert!(answer.exit < 128, "killed by a signal: {bytes} {args:?}");
            if answer.exit != 0 {
                let code = answer.is_a_clear_error();
                let error = answer.json["error"].to_string();
                assert!(["file_too_large", "rollback_failed"].contains(&code), "{bytes} {args:?}: {error}");
                assert!(error.contains("ulimit -f"), "{error}");
                place.run(&["recover"]).succeeds();
                assert_same(&place.image(), &now);
                refused += 1;
            }
        }
        place.write("file", noise(2 + bytes, 300_000));
    }
    assert!(refused > 6, "{refused}");
    place.rollback(&id);
    place.is_whole();
    // A child program gets the original signal dispositions.
    let script = "grep -E 'SigIgn|SigCgt' /proc/self/status";
    let output = place.command(&["run", "--", "/bin/sh", "-c", script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let mask = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(mask >> 24 & 1, 0, "SIGXFSZ: {text}");
    }
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn a_full_disk_of_any_sort_is_called_full() {
    let Some(mount) = Mount::ext4(24 << 20) else {
        return skip("a_full_disk_of_any_sort_is_called_full", "it takes mkfs.ext4 and the right to mount");
    };
    let place = Place::new();
    let home = mount.path().join("home");
    place.write("file", noise(1, 400_000));
    let run = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        Answer::of(&args, &place.command(&args).env("SAFEPOINT_HOME", &home).output().unwrap())
    };
    run(&["create", "--kind", "manual"]).succeeds();
    lift_the_cap(&home);
    fill(&mount.path().join("filler"), 0);
    for round in 0..6 {
        place.write("file", noise(round, 400_000));
        let answer = run(&["create", "--kind", "manual"]);
        answer.fails(1, "disk_full");
        assert!(!answer.errors.contains("disk I/O error"), "{}", answer.errors);
        // Reading works.
        run(&["list"]).succeeds();
        run(&["status"]).succeeds();
    }
}
