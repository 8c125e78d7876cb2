//! Plans whose sandbox is an overlay: their steps, rollbacks, recovery and application, with the real program. Each state is compared
//! with a plain copy in which the same commands ran.

use crate::histories::script;
use crate::world::{Chance, User, World};
use safepoint_testkit::{End, Fail, Program, TreeImage, calls, fail_at, kill_at};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Users for whom this machine mounts an overlay.
fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for user in [User::Own, User::Nobody] {
        if !user.is_possible() {
            eprintln!("left out: another user needs root");
            continue;
        }
        let world = World::new(user);
        world.write("file", "old\n");
        if !world.has_overlay() {
            eprintln!("left out: this machine gives {user:?} no overlay");
            continue;
        }
        worlds.push(world);
    }
    worlds
}

/// Makes a plan `p` with an overlay, and steps `s0`, `s1` and so on.
fn new_plan(world: &World, steps: &[String]) {
    let mut text = "title = 'P'\nid = 'p'\n[sandbox]\nkind = 'overlay'\n".to_owned();
    for (number, line) in steps.iter().enumerate() {
        text += &format!("[[step]]\nid = 's{number}'\nrun = '''\n{line}\n'''\n");
    }
    let file = world.folder.join("plan.toml");
    fs::write(&file, text).unwrap();
    world.run(&["plan", "new", file.to_str().unwrap()]);
}

/// The newest checkpoint of the plan counts, not the base: nothing but the plan captures this attempt.
#[test]
fn the_attempt_of_a_plan_shows_what_the_steps_changed() {
    for world in worlds() {
        new_plan(&world, &["echo new > file; echo more > other".to_owned(), "true".to_owned()]);
        world.run(&["plan", "run", "p"]);
        let listed = world.run(&["attempt", "list"]);
        let changes = &listed["attempts"][0]["changes"];
        assert_eq!(
            (changes["added"].as_u64(), changes["modified"].as_u64()),
            (Some(1), Some(1)),
            "{listed:#}"
        );
        let diff = world.run(&["attempt", "diff", "plan-p"]);
        let paths = diff["changes"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap());
        assert_eq!(paths.collect::<Vec<_>>(), ["file", "other"]);
        world.run(&["plan", "rollback", "p", &before_step(&world, 0)]);
        let diff = world.run(&["attempt", "diff", "plan-p"]);
        assert!(diff["changes"].as_array().unwrap().is_empty(), "{diff:#}");
    }
}

/// The tree of the sandbox, as a command in it finds it.
fn view(world: &World) -> TreeImage {
    let to = world.folder.join("view");
    let line = format!("cp -a . {}", to.display());
    assert_eq!(world.answer(&["attempt", "exec", "plan-p", "--", "sh", "-c", &line])["exit_code"], 0);
    let image = world.image(&to);
    world.shell("chmod -R u+rwx view; rm -rf view", &world.folder);
    image
}

fn assert_view(world: &World, wanted: &TreeImage, what: &str) {
    let difference = view(world).difference(wanted);
    assert!(difference.is_empty(), "{:?}, {what}: {difference:#?}", world.user);
}

/// Checkpoints of the plan, oldest first: id and label.
fn checkpoints(world: &World) -> Vec<(String, String)> {
    let listed = world.run(&["plan", "checkpoint", "list", "p"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = listed["checkpoints"].as_array().unwrap().iter();
    let mut all: Vec<_> = rows.map(|row| (text(&row["id"]), text(&row["label"]))).collect();
    all.reverse();
    all
}

fn before_step(world: &World, step: usize) -> String {
    let label = format!("before s{step}");
    checkpoints(world).into_iter().find(|(_, other)| *other == label).unwrap().0
}

/// The folder that stands for the sandbox.
fn stand(world: &World) -> String {
    let plan = world.run(&["plan", "show", "p"]);
    assert_eq!(plan["plan"]["sandbox"]["kind"], "overlay", "{plan:#}");
    plan["plan"]["sandbox"]["path"].as_str().unwrap().to_owned()
}

/// A plain copy of the project, and what it is before each script and at the end.
fn model(world: &World, scripts: &[String]) -> Vec<TreeImage> {
    let copy = world.folder.join("model");
    world.shell("cp -a project model", &world.folder);
    let mut images = vec![world.image(&copy)];
    for script in scripts {
        world.shell(script, &copy);
        images.push(world.image(&copy));
    }
    images
}

fn nothing_is_mounted() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("safepoint-attempt"), "a mount is left");
}

fn layers(world: &World) -> Vec<String> {
    let rooms = fs::read_dir(world.home.join("attempts")).unwrap().map(|entry| entry.unwrap().path());
    let names = rooms.flat_map(|room| fs::read_dir(room).unwrap());
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("layer")).collect()
}

#[test]
fn a_plan_in_an_overlay_goes_to_each_of_its_checkpoints_as_a_plain_copy_does() {
    for (world, seed) in worlds().into_iter().zip(7..) {
        let mut chance = Chance(seed);
        world.shell(&script(&mut chance), &world.project());
        world.write(".git/HEAD", "ref: refs/heads/main\n");
        let before = world.image(&world.project());
        let scripts: Vec<String> = (0..4).map(|_| script(&mut chance)).collect();
        let images = model(&world, &scripts);
        new_plan(&world, &scripts);
        world.run(&["plan", "run", "p"]);
        assert!(world.image(&world.project()).difference(&before).is_empty(), "the project changed");
        assert_view(&world, images.last().unwrap(), "after the run");
        let stand = stand(&world);
        for _ in 0..6 {
            let step = chance.below(4) as usize;
            world.run(&["plan", "rollback", "p", &before_step(&world, step)]);
            assert_view(&world, &images[step], &format!("before s{step}"));
            world.run(&["-C", &stand, "undo"]);
            assert_view(&world, &images[4], "undo");
        }
        world.run(&["plan", "rollback", "p", &before_step(&world, 2)]);
        world.run(&["plan", "resume", "p"]);
        assert_view(&world, &images[4], "run again");
        assert_eq!(layers(&world), ["layer"]);
        assert!(world.image(&world.project()).difference(&before).is_empty(), "the project changed");
        world.run(&["plan", "apply", "p"]);
        let difference = world.image(&world.project()).difference(&images[4]);
        assert!(difference.is_empty(), "applied: {difference:#?}");
        assert_eq!(world.rooms(), 0);
        world.run(&["undo"]);
        assert!(world.image(&world.project()).difference(&before).is_empty(), "undo of the apply");
        assert_eq!(world.run(&["validate", "--deep"])["is_valid"], true);
        nothing_is_mounted();
    }
}

#[test]
fn a_rollback_of_an_overlay_keeps_what_no_checkpoint_holds() {
    for world in worlds() {
        world.write(".git/config", "project\n");
        let steps = [
            "mkdir -p .git/objects; echo mine > .git/objects/one; echo x >> file".to_owned(),
            "mkdir cache; echo 'Signature: 8a477f597d28d172789f06886806bc55' > cache/CACHEDIR.TAG; echo c > cache/c; \
             echo sandbox > .git/config; rm file; mkdir file; echo y > file/y"
                .to_owned(),
        ];
        new_plan(&world, &steps);
        world.run(&["plan", "run", "p"]);
        world.run(&["plan", "rollback", "p", &before_step(&world, 0)]);
        let line = "cat .git/config .git/objects/one cache/c file; ls -A";
        let shown = world.output(&["attempt", "exec", "plan-p", "--", "sh", "-c", line]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(shown, "sandbox\nmine\nc\nold\n.git\ncache\nfile\n", "{:?}", world.user);
        assert_eq!((world.read(".git/config").as_str(), world.read("file").as_str()), ("project\n", "old\n"));
    }
}

#[test]
fn a_rollback_of_an_overlay_restores_folders_that_forbid_writing() {
    for world in worlds() {
        let steps = [
            "mkdir -p ro/deep; echo 1 > ro/f; echo 1 > ro/deep/f; chmod 555 ro/deep ro; chmod 444 file",
            "chmod 755 ro ro/deep; echo 2 > ro/f; rm ro/deep/f; chmod 500 ro/deep; chmod 555 ro; rm -f file",
            "chmod -R 755 ro; rm -rf ro; echo 3 > ro",
        ]
        .map(str::to_owned);
        let images = model(&world, &steps);
        new_plan(&world, &steps);
        world.run(&["plan", "run", "p"]);
        for step in [1, 2, 0, 2, 1] {
            world.run(&["plan", "rollback", "p", &before_step(&world, step)]);
            assert_view(&world, &images[step], &format!("before s{step}"));
        }
    }
}

#[test]
fn checks_undo_commands_and_steps_side_by_side_run_in_the_overlay() {
    for world in worlds() {
        let out = world.folder.join("undone");
        let sides: String = (0..4)
            .map(|n| format!("[[step.step]]\nid = 'n{n}'\nrun = 'echo {n} > n{n}; sleep 0.0{n}; cat file'\n"))
            .collect();
        let text = format!(
            "title = 'P'\nid = 'p'\n[sandbox]\nkind = 'overlay'\n\
             [[step]]\nid = 'one'\nrun = 'echo new > file'\nverify = 'grep new file'\nundo = 'cp file {}'\n\
             [[step]]\nid = 'sides'\nparallel = 4\nverify = 'cat n0 n1 n2 n3'\n{sides}",
            out.display()
        );
        let file = world.folder.join("plan.toml");
        fs::write(&file, text).unwrap();
        world.run(&["plan", "new", file.to_str().unwrap()]);
        world.run(&["plan", "run", "p"]);
        let log = world.output(&["plan", "log", "p", "sides/n3"]);
        assert_eq!(String::from_utf8(log.stdout).unwrap().trim(), "new");
        assert_eq!(world.read("file"), "old\n");
        world.run(&["plan", "rollback", "p", "before one"]);
        assert_eq!(fs::read_to_string(&out).unwrap(), "new\n", "the undo command saw the project");
        let shown = world.output(&["attempt", "exec", "plan-p", "--", "sh", "-c", "cat file; ls"]);
        assert_eq!(String::from_utf8(shown.stdout).unwrap(), "old\nfile\n");
        nothing_is_mounted();
    }
}

#[test]
fn an_overlay_is_corrected_by_revert_append_and_retry_with_decisions_and_outputs() {
    for world in worlds() {
        let steps = ["echo one > one; echo a >> file", "rm one; echo two > two; exit 3"].map(str::to_owned);
        let scripts = [steps[0].clone(), "rm one; echo two > two".to_owned()];
        let images = model(&world, &scripts);
        new_plan(&world, &steps);
        assert_eq!(world.answer(&["plan", "run", "p"])["error"]["code"], "step_failed");
        assert_view(&world, &images[2], "failed");
        world.run(&["plan", "decide", "p", "--question", "q", "--choice", "c"]);
        world.run(&["plan", "output", "set", "p", "key", "1"]);
        world.run(&["plan", "correct", "p", "--mode", "revert"]);
        assert_view(&world, &images[1], "revert");
        let plan = world.run(&["plan", "show", "p"])["plan"].clone();
        assert_eq!((&plan["outputs"], &plan["decisions"]), (&serde_json::json!({}), &serde_json::json!([])));
        assert_eq!(world.answer(&["plan", "resume", "p"])["error"]["code"], "step_failed");
        let append =
            ["plan", "correct", "p", "--mode", "append", "--step", "Between", "--run", "echo b > between"];
        world.run(&append);
        world.run(&[
            "plan",
            "correct",
            "p",
            "--mode",
            "edit",
            "--at",
            "s1",
            "--run",
            "rm -f one; echo 2 > two",
        ]);
        world.run(&["plan", "resume", "p"]);
        world.write("two-of-the-project", "theirs\n");
        assert_eq!(world.answer(&["plan", "apply", "p"])["error"]["code"], "project_changed");
        world.run(&["plan", "apply", "p", "--merge"]);
        assert!(!world.project().join("one").exists());
        assert_eq!(
            ["two", "between", "file", "two-of-the-project"].map(|name| world.read(name)).concat(),
            "2\nb\nold\na\ntheirs\n"
        );
        world.run(&["undo"]);
        assert_eq!(world.read("file"), "old\n");
        assert!(!world.project().join("two").exists());
    }
}

#[test]
fn a_result_of_an_overlay_that_meets_a_change_of_the_project_is_refused() {
    for world in worlds() {
        new_plan(&world, &["echo mine > file".to_owned()]);
        world.run(&["plan", "run", "p"]);
        world.write("file", "theirs\n");
        for args in [&["plan", "apply", "p"][..], &["plan", "apply", "p", "--merge"]] {
            assert_eq!(world.answer(args)["error"]["kind"], "conflict", "{args:?}");
        }
        assert_eq!(world.read("file"), "theirs\n");
    }
}

#[test]
fn a_run_in_an_overlay_killed_at_random_moments_is_resumed_to_the_same_end() {
    for (world, seed) in worlds().into_iter().zip(20..) {
        let mut chance = Chance(seed);
        let steps: Vec<String> = (0..6)
            .map(|n| format!("echo {n} > f{n}; rm -rf d; mkdir d; echo {n} > d/in; sleep 0.1"))
            .collect();
        let images = model(&world, &steps);
        new_plan(&world, &steps);
        let mut verb = "run";
        for _ in 0..6 {
            let mut args = vec!["plan", verb, "p"];
            args.extend((verb == "resume").then_some(["--interrupted", "rerun"]).into_iter().flatten());
            let mut command = world.command(&args);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(100 + chance.below(900)));
            let _ = child.kill();
            child.wait().unwrap();
            if world.run(&["plan", "show", "p"])["plan"]["state"] != "ready" {
                verb = "resume";
            }
        }
        match verb {
            "run" => world.run(&["plan", "run", "p"]),
            _ => world.run(&["plan", "resume", "p", "--interrupted", "rerun"]),
        };
        assert_view(&world, &images[6], "resumed");
        world.run(&["plan", "rollback", "p", &before_step(&world, 0)]);
        assert_view(&world, &images[0], "back");
        nothing_is_mounted();
    }
}

#[test]
fn a_rollback_of_an_overlay_in_which_a_process_is_left_is_refused_with_its_name() {
    for world in worlds() {
        // The step ends once the daemon has left its group.
        let line = "setsid sh -c 'echo new > file; exec sleep 600' > /dev/null 2>&1 < /dev/null &\n\
                    until grep -q new file; do sleep 0.01; done";
        new_plan(&world, &[line.to_owned()]);
        world.run(&["plan", "run", "p"]);
        for args in [&["plan", "rollback", "p", "before s0"][..], &["plan", "apply", "p"]] {
            let refused = world.answer(args);
            assert_eq!(refused["error"]["code"], "room_in_use", "{refused:#}");
            assert!(refused["error"]["message"].as_str().unwrap().contains(" ("), "{refused:#}");
        }
        let processes = world.run(&["attempt", "show", "plan-p"])["attempt"]["processes"].clone();
        for process in processes.as_array().unwrap() {
            let pid = i32::try_from(process["pid"].as_i64().unwrap()).unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        world.run(&["plan", "rollback", "p", "before s0"]);
        let shown = world.output(&["attempt", "exec", "plan-p", "--", "cat", "file"]);
        assert_eq!(shown.stdout, b"old\n");
    }
}

#[test]
fn the_attempt_of_an_open_plan_is_neither_kept_nor_dropped() {
    for world in worlds() {
        new_plan(&world, &["echo new > file".to_owned()]);
        world.run(&["plan", "run", "p"]);
        for verb in ["keep", "drop"] {
            assert_eq!(world.answer(&["attempt", verb, "plan-p"])["error"]["code"], "attempt_of_plan");
        }
        // A keep drops the other attempts, and not this one.
        world.run(&["try", "--keep", "--", "sh", "-c", "echo tried > tried"]);
        assert_eq!(world.run(&["attempt", "show", "plan-p"])["attempt"]["state"], "open");
        world.run(&["gc"]);
        world.run(&["plan", "apply", "p", "--merge"]);
        assert_eq!(world.read("file") + &world.read("tried"), "new\ntried\n");
        assert_eq!(world.rooms(), 0);
    }
}

#[test]
fn a_missing_overlay_is_made_again_from_its_checkpoint() {
    for world in worlds() {
        let steps = ["echo one > one; rm file".to_owned(), "echo two > two".to_owned()];
        let images = model(&world, &steps);
        new_plan(&world, &steps);
        world.run(&["plan", "run", "p"]);
        world.run(&["plan", "checkpoint", "create", "p", "-m", "end"]);
        fs::remove_dir_all(
            fs::read_dir(world.home.join("attempts")).unwrap().next().unwrap().unwrap().path(),
        )
        .unwrap();
        assert_eq!(world.run(&["plan", "show", "p"])["plan"]["sandbox"]["state"], "missing");
        assert_eq!(world.answer(&["plan", "rollback", "p", "end"])["error"]["code"], "sandbox_missing");
        for (to, wanted) in [("end", 2), ("before s1", 1)] {
            world.run(&["plan", "rollback", "p", to, "--recreate-sandbox"]);
            assert_view(&world, &images[wanted], to);
        }
        world.run(&["plan", "resume", "p"]);
        world.run(&["plan", "apply", "p"]);
        assert!(world.image(&world.project()).difference(&images[2]).is_empty());
    }
}

#[test]
fn without_an_overlay_the_sandbox_is_a_copy_and_is_announced() {
    let mut world = World::new(User::Own);
    world.write("file", "old\n");
    // The home would be part of the overlay.
    world.home = world.project().join(".home");
    new_plan(&world, &["echo new > file".to_owned()]);
    let output = world.output(&["plan", "run", "p"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("works in a copy, because no overlay can be mounted"), "{told}");
    let sandbox = world.run(&["plan", "show", "p"])["plan"]["sandbox"].clone();
    assert_eq!(sandbox["kind"], "copy");
    assert_eq!(world.read("file"), "old\n");
    world.run(&["plan", "apply", "p"]);
    assert_eq!(world.read("file"), "new\n");
}

#[test]
fn a_step_in_an_overlay_is_at_the_path_of_the_project_and_cannot_roll_it_back() {
    for world in worlds() {
        let program = world.program.display();
        let line = format!(
            "pwd > where; echo $SAFEPOINT_SANDBOX >> where; {program} --json rollback \"before s0\" > answer; true"
        );
        new_plan(&world, &["echo one > file".to_owned(), line]);
        world.run(&["plan", "run", "p"]);
        world.run(&["plan", "apply", "p"]);
        let project = world.project().display().to_string();
        assert_eq!(world.read("where"), format!("{project}\n{project}\n"));
        let answer: Value = serde_json::from_str(&world.read("answer")).unwrap();
        assert_eq!(answer["error"]["code"], "inside_attempt", "{answer:#}");
        assert_eq!(world.read("file"), "one\n");
    }
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// The program with these arguments, for the tracer.
fn program(world: &World, args: &[&str]) -> Program {
    let mut env: Vec<(OsString, OsString)> = vec![
        ("SAFEPOINT_HOME".into(), world.home.clone().into()),
        ("HOME".into(), world.folder.clone().into()),
        // One thread: the calls have the same order in every run.
        ("RAYON_NUM_THREADS".into(), "1".into()),
    ];
    env.extend(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE".into(), file)));
    let args = args.iter().map(OsString::from).collect();
    Program { exe: world.program.clone(), args, env, cwd: world.project() }
}

/// A plan that was run in an overlay, and a rollback of it that can be repeated from the same state.
struct Repeated {
    world: World,
    laid: PathBuf,
    target: String,
    images: Vec<TreeImage>,
}

impl Repeated {
    /// `None` if this machine gives no overlay.
    fn new() -> Option<Self> {
        let world = World::new(User::Own);
        world.write("file", "old\n");
        world.write("deep/er/kept", "kept\n");
        if !world.has_overlay() {
            eprintln!("left out: this machine gives no overlay");
            return None;
        }
        let steps = ["echo one > file; echo 1 > one; rm -r deep", "mkdir deep; echo 2 > deep/two; rm one"];
        let images = model(&world, &steps.map(str::to_owned));
        new_plan(&world, &steps.map(str::to_owned));
        world.run(&["plan", "run", "p"]);
        let (laid, target) = (world.folder.join("laid"), before_step(&world, 1));
        copy(&world.home, &laid);
        Some(Self { world, laid, target, images })
    }

    fn lay(&self) {
        fs::remove_dir_all(&self.world.home).unwrap();
        copy(&self.laid, &self.world.home);
    }

    fn verb(&self) -> Program {
        program(&self.world, &["plan", "rollback", "p", &self.target])
    }

    /// Checks that files and plan are both old or both new. Returns true for new.
    fn law(&self, end: &End) -> bool {
        let Self { world, images, .. } = self;
        // A room in which a rollback was interrupted is recovered before anything enters it.
        let seen = view(world);
        let is_new = seen.difference(&images[1]).is_empty();
        assert!(is_new || seen.difference(&images[2]).is_empty(), "{end:?}: a mixture");
        let state = world.run(&["plan", "show", "p"])["plan"]["state"].clone();
        assert_eq!(state, if is_new { "running" } else { "done" }, "{end:?}: files without the plan");
        assert_eq!(layers(world), ["layer"], "{end:?}");
        nothing_is_mounted();
        is_new
    }

    fn goes_on(&self) {
        let world = &self.world;
        world.run(&["plan", "rollback", "p", &self.target]);
        world.run(&["plan", "resume", "p"]);
        assert_view(world, &self.images[2], "it goes on");
    }
}

/// Distance of the calls that are tried.
fn stride(usual: usize) -> usize {
    let is_full = std::env::var_os("SAFEPOINT_PROOF").is_some_and(|proof| proof == "full");
    if is_full { 1 } else { usual }
}

#[test]
fn a_rollback_of_an_overlay_killed_anywhere_is_old_or_new() {
    let Some(repeated) = Repeated::new() else { return };
    let (mut points, mut old, mut new) = (0, 0, 0);
    for point in (1..).step_by(stride(5)) {
        repeated.lay();
        let end = kill_at(&repeated.verb(), point).unwrap();
        let is_done = !matches!(end, End::Killed { .. });
        assert!(!is_done || end.is_success(), "{end:?}");
        let is_new = repeated.law(&end);
        assert!(is_new || !is_done, "reported and not there");
        *(if is_new { &mut new } else { &mut old }) += 1;
        if is_done {
            break;
        }
        points += 1;
        if points % 8 == 0 {
            repeated.goes_on();
        }
    }
    eprintln!("kill -9: {points} points: {old} old, {new} new, 0 mixtures");
    assert!(points > 10 && old > 0 && new > 0, "the loop must see both outcomes");
}

#[test]
fn a_rollback_of_an_overlay_in_which_any_call_fails_is_old_or_new() {
    let Some(repeated) = Repeated::new() else { return };
    let (mut points, mut old, mut new) = (0, 0, 0);
    repeated.lay();
    let count = calls(&repeated.verb()).unwrap().0.len() as u64;
    for point in (1..=count).step_by(stride(9)) {
        repeated.lay();
        let eio = rustix::io::Errno::IO.raw_os_error();
        let end = fail_at(&repeated.verb(), point, eio, Fail::Once).unwrap();
        let is_new = repeated.law(&end);
        assert!(is_new || !end.is_success(), "call {point} failed: reported and not there");
        *(if is_new { &mut new } else { &mut old }) += 1;
        points += 1;
    }
    eprintln!("EIO: {points} points: {old} old, {new} new, 0 mixtures");
    assert!(points > 5 && old > 0 && new > 0, "the loop must see both outcomes");
}
