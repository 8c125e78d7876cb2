//! Cost of an agent's hooks when nothing changed, beside a bare walk and beside git in a separate index.
//!
//! opencode and Cline keep the state before each turn with `git add -A` into a repository of their own. Each measurement is a whole
//! process. The figures of one row come from the same repetitions, so their ratios hold on a busy machine, too.

use crate::args::Hooks;
use crate::failure::{Result, Tried};
use crate::generate::make_files;
use crate::limits::walk;
use crate::machine::Machine;
use crate::measure::{Cmd, settle};
use crate::numbers::{Series, seconds};
use crate::tools::own_safepoint;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::TempDir;

const SESSION: &str = "0193a6b4-8000-7000-8000-000000000001";
/// Files of the small project.
const SMALL: u64 = 1_000;

/// A project with what each way keeps of it.
struct Desk {
    folder: TempDir,
    project: PathBuf,
    safepoint: PathBuf,
}

/// Times of one way, with its name.
struct Way {
    name: &'static str,
    series: Series,
}

/// Runs `hooks`.
pub(crate) fn run(args: &Hooks) -> Result<ExitCode> {
    let safepoint = args.safepoint.clone().map_or_else(own_safepoint, Ok)?;
    let work = args.work.clone().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    println!("{}\n", Machine::this(&work)?.words());
    println!("| tree | way | median | min to max | times the bare walk |\n|---|---|---|---|---|");
    let mut reports = Vec::new();
    let small = Desk::new(&work, &safepoint, None)?;
    reports.push(small.report(&format!("{SMALL} files"), args.repeat)?);
    drop(small);
    if let Some(tree) = &args.tree {
        let large = Desk::new(&work, &safepoint, Some(tree))?;
        let (entries, _) = walk(&large.project)?;
        reports.push(large.report(&format!("{entries} entries"), args.repeat)?);
    }
    if let Some(path) = &args.json {
        let text = Value::from(reports).to_string();
        fs::write(path, text).tried(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Desk {
    /// Generates the small project, or takes a tree as it is: no way writes into it.
    fn new(work: &Path, safepoint: &Path, tree: Option<&PathBuf>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("safepoint-bench-hooks-").tempdir_in(work);
        let folder = folder.tried(|| format!("creating a folder in {}", work.display()))?;
        let project = match tree {
            Some(tree) => tree.canonicalize().tried(|| format!("opening {}", tree.display()))?,
            None => folder.path().join("project"),
        };
        if tree.is_none() {
            make_files(SMALL, &project, 1)?;
        }
        let desk = Self { folder, project, safepoint: safepoint.to_owned() };
        desk.safepoint(&["init"]).measure()?;
        desk.git("git init -q && git config gc.auto 0 && git config core.untrackedCache true").measure()?;
        desk.git("git add -A --force && git write-tree").measure()?;
        for event in ["SessionStart", "UserPromptSubmit"] {
            desk.hook(event, "start")?.measure()?;
        }
        desk.hook("PreToolUse", "first")?.measure()?;
        desk.hook("Stop", "first")?.measure()?;
        Ok(desk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn safepoint(&self, args: &[&str]) -> Cmd {
        let home = self.path("home");
        Cmd::new(&self.safepoint, &self.project)
            .args(args)
            .env("SAFEPOINT_HOME", home)
            .env("HOME", self.path("user"))
    }

    /// A hook as the installed command runs it: the shell feeds it the event.
    fn hook(&self, event: &str, id: &str) -> Result<Cmd> {
        let input = json!({
            "session_id": SESSION, "cwd": self.project, "hook_event_name": event, "prompt": id,
            "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "make" },
        });
        let file = self.path("event.json");
        fs::write(&file, input.to_string()).tried(|| format!("writing {}", file.display()))?;
        let line = "exec \"$0\" hook claude < \"$1\"";
        let command = Cmd::new(Path::new("/bin/sh"), &self.project).args(["-c", line]);
        let command = command.args([&self.safepoint, &file]);
        Ok(command.env("SAFEPOINT_HOME", self.path("home")).env("HOME", self.path("user")))
    }

    fn git(&self, line: &str) -> Cmd {
        let command = Cmd::new(Path::new("/bin/sh"), &self.project).args(["-c", line]);
        let command = command.env("GIT_DIR", self.path("git")).env("GIT_WORK_TREE", &self.project);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null")
    }

    fn report(&self, tree: &str, repeat: u32) -> Result<Value> {
        let names = [
            "bare walk",
            "first `PreToolUse` of a turn",
            "next `PreToolUse`",
            "`Stop`",
            "`git add -A --force` and `git write-tree`",
        ];
        let mut ways: Vec<Way> = names.map(|name| Way { name, series: Series::default() }).into();
        for number in 0..=repeat {
            settle(self.folder.path())?;
            self.hook("UserPromptSubmit", &format!("prompt {number}"))?.measure()?;
            let times = [
                walk(&self.project)?.1,
                self.hook("PreToolUse", &format!("{number} first"))?.measure()?.seconds,
                self.hook("PreToolUse", &format!("{number} next"))?.measure()?.seconds,
                self.hook("Stop", "")?.measure()?.seconds,
                self.git("git add -A --force && git write-tree").measure()?.seconds,
            ];
            // The first one warms the caches.
            if number > 0 {
                ways.iter_mut().zip(times).for_each(|(way, time)| way.series.push(time));
            }
        }
        let base = ways[0].series.median().unwrap_or_default();
        for way in &ways {
            let (median, (min, max)) =
                (way.series.median().unwrap_or_default(), way.series.spread().unwrap_or_default());
            println!(
                "| {tree} | {} | {} | {} to {} | {:.2} |",
                way.name,
                seconds(median),
                seconds(min),
                seconds(max),
                median / base
            );
        }
        let series: Vec<Value> =
            ways.iter().map(|way| json!({ "way": way.name, "seconds": way.series.seconds })).collect();
        Ok(json!({ "tree": tree, "ways": series }))
    }
}
