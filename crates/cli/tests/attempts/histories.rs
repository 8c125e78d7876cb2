//! Random edits in an attempt have the same result as in a plain copy, for each means, user and file system.

use crate::world::{Chance, Means, User, World};
use safepoint_testkit::blocks::{Filesystem, Mounts, in_own_namespace, missing};
use std::fs;
use std::path::Path;

/// Rounds of each history.
const ROUNDS: u64 = 2;
/// Edits of a script.
const EDITS: u64 = 60;

/// Folder of random depth, from few names, so that edits meet.
fn folder(chance: &mut Chance) -> String {
    let names: Vec<String> = (0..chance.below(3)).map(|_| format!("d{}", chance.below(4))).collect();
    names.join("/")
}

fn path(chance: &mut Chance) -> String {
    let folder = folder(chance);
    let name = match chance.below(8) {
        0 => format!("d{}", chance.below(4)),
        other => format!("f{}", (other + chance.below(3)) % 7),
    };
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

/// A shell script of random edits. Each may fail, on both sides alike. It makes no hard links: the kernel breaks them where an overlay
/// copies a file up, and a checkpoint holds each name as a file.
pub(crate) fn script(chance: &mut Chance) -> String {
    let mut lines = vec!["exec 2>/dev/null".to_owned(), "umask 022".to_owned()];
    for number in 0..EDITS {
        let (one, other) = (path(chance), path(chance));
        let size = [0, 1, 30, 9000][chance.below(4) as usize];
        lines.push(match chance.below(13) {
            0..=2 => format!(
                "mkdir -p \"$(dirname {one})\"; [ -d {one} ] || seq {number} {} > {one}",
                number + size
            ),
            3 | 4 => format!("[ -f {one} ] && ! [ -L {one} ] && echo more{number} >> {one}"),
            5 => format!("rm -f {one}"),
            6 => format!("mkdir -p {one}"),
            7 => format!("rm -rf {one}"),
            8 => format!("rm -rf {one}; mkdir -p {one}; echo {number} > {one}/again"),
            9 => format!("mv -T {one} {other}"),
            10 => format!(
                "[ -e {one} ] && ! [ -L {one} ] && chmod {} {one}",
                ["755", "700", "750"][chance.below(3) as usize]
            ),
            11 => format!("ln -sfn target{number} {one}"),
            _ => format!("[ -f {one} ] && ! [ -L {one} ] && setfattr -n user.note -v v{number} {one}"),
        });
    }
    lines.push("true".to_owned());
    lines.join("\n")
}

/// A history in which each attempt is kept, undone and redone.
fn history(world: &World, means: Means, seed: u64) {
    let mut chance = Chance(seed);
    world.shell(&script(&mut chance), &world.project());
    for round in 0..ROUNDS {
        let (before, name) = (world.image(&world.project()), format!("a{round}"));
        let model = world.folder.join(format!("model{round}"));
        world.shell(&format!("cp -a {} {}", world.project().display(), model.display()), &world.folder);
        let attempt = world.start(&name, means);
        for _ in 0..2 {
            let script = script(&mut chance);
            let line = format!("cd {}\n{script}", world.place(&attempt).display());
            world.run(&["attempt", "exec", &name, "--", "/bin/sh", "-c", &line]);
            world.shell(&script, &model);
        }
        assert!(
            world.image(&world.project()).difference(&before).is_empty(),
            "seed {seed}: the project changed"
        );
        let wanted = world.image(&model);
        // The checkpoint of the result alone, before the project has it.
        let shown = world.run(&["attempt", "show", &name])["attempt"].clone();
        let built = world.folder.join(format!("built{round}"));
        world.run(&["rollback", shown["result"].as_str().unwrap(), "--to", built.to_str().unwrap()]);
        let difference = world.image(&built).difference(&wanted);
        assert!(difference.is_empty(), "seed {seed}, round {round}, built: {difference:#?}");
        world.run(&["attempt", "keep", &name]);
        let difference = world.image(&world.project()).difference(&wanted);
        assert!(difference.is_empty(), "seed {seed}, round {round}: {difference:#?}");
        world.run(&["undo"]);
        assert!(world.image(&world.project()).difference(&before).is_empty(), "seed {seed}: undo");
        world.run(&["redo"]);
        assert!(world.image(&world.project()).difference(&wanted).is_empty(), "seed {seed}: redo");
        assert_eq!(world.rooms(), 0, "seed {seed}: a room is left");
    }
    assert_eq!(world.run(&["validate", "--deep"])["is_valid"], true);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("safepoint-attempt"), "a mount is left");
}

/// Runs a history for each user and each means.
pub(crate) fn matrix(folder: Option<&Path>, seed: u64) {
    for user in [User::Own, User::Nobody] {
        if !user.is_possible() {
            eprintln!("left out: another user needs root");
            continue;
        }
        for means in [Means::Best, Means::Copy] {
            let world = match folder {
                Some(folder) => {
                    let own = folder.join(format!("{user:?}{means:?}"));
                    fs::create_dir(&own).unwrap();
                    World::at(&own, user)
                }
                None => World::new(user),
            };
            if means == Means::Best && !world.has_overlay() {
                eprintln!("left out: this machine gives {user:?} no overlay");
                continue;
            }
            history(&world, means, seed);
        }
    }
}

#[test]
fn random_edits_have_the_result_of_a_plain_copy() {
    matrix(None, 1);
    matrix(None, 2);
}

fn on(filesystem: Filesystem, test: &str, seed: u64) {
    if let Some(why) = missing(filesystem) {
        eprintln!("left out: {} because {why}", filesystem.name());
        return;
    }
    if !in_own_namespace(test).unwrap() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, place) = (folder.path().join("image"), folder.path().join("place"));
    fs::create_dir(&place).unwrap();
    filesystem.make(&image).unwrap();
    fs::OpenOptions::new().write(true).open(&image).unwrap();
    let mounts = Mounts::mount(filesystem, &[image], std::slice::from_ref(&place)).unwrap();
    matrix(Some(&place), seed);
    mounts.unmount().unwrap();
}

#[test]
fn random_edits_on_xfs_have_the_result_of_a_plain_copy() {
    on(Filesystem::Xfs, "histories::random_edits_on_xfs_have_the_result_of_a_plain_copy", 3);
}

#[test]
fn random_edits_on_btrfs_have_the_result_of_a_plain_copy() {
    on(Filesystem::Btrfs, "histories::random_edits_on_btrfs_have_the_result_of_a_plain_copy", 4);
}
