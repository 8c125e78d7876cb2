//! `demo`: a tour in a temporary folder with real operations: a project, a checkpoint, a disaster, a
//! rollback, and a plan.

mod plan;
mod project;

use crate::args::DemoArgs;
use crate::commands::Context;
use crate::commands::status::change_line;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::fold::folded;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, size};
use project::{Picture, Project};
use safepoint::{CheckpointManager, CreateOptions, RollbackOptions, Silent, Workspace};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

pub(crate) fn run(context: &Context, args: &DemoArgs) -> Result<Reply, Problem> {
    let folder = project::temporary_folder()?;
    let home = folder.path().join("home");
    let manager = Surroundings { home, ..context.surroundings.clone() }.open(None)?;
    let project = Project::new(&folder.path().join("shop"));
    let story = Story {
        out: &context.out,
        manager,
        project,
        full: args.full,
        began: RefCell::new(Instant::now()),
        steps: RefCell::default(),
    };
    let same = story.tell()?;
    if !same {
        return Err(Problem::internal("the demo's project is not as it was".to_owned()));
    }
    let steps = story.steps.take();
    drop(story);
    let kept = if args.keep { Some(folder.keep()) } else { None };
    farewell(&context.out, kept.as_deref(), args.full);
    let kept = kept.map(|path| path.to_string_lossy().into_owned());
    Ok(Reply::done(json!({ "steps": steps, "verified": same, "folder": kept })))
}

/// Changes that the short tour shows.
const SHOWN_MAX: usize = 4;

/// State of the tour.
struct Story<'a> {
    out: &'a Printer,
    manager: CheckpointManager,
    project: Project,
    /// Shows all steps, in place of the five that fit a screen.
    full: bool,
    began: RefCell<Instant>,
    steps: RefCell<Vec<Value>>,
}

impl Story<'_> {
    /// Runs the tour; returns true if each comparison succeeds.
    fn tell(&self) -> Result<bool, Problem> {
        let before = self.setting()?;
        let workspace = self.manager.workspaces().register(self.project.root())?;
        let checkpoint = self.checkpoint(&workspace)?;
        let after = self.disaster(&workspace)?;
        self.begin();
        let back = self.manager.rollback(&workspace, checkpoint, &RollbackOptions::default(), &Silent)?;
        self.step(
            "safepoint rollback @",
            &[format!(
                "{} restored, {} removed: all or nothing, on disk, and read back",
                counted(back.outline().restored, "file", "files"),
                back.outline().removed
            )],
        );
        let restored = self.compare("Is it really the same?", &before, "before the disaster")?;
        self.begin();
        self.manager.undo(&workspace, &RollbackOptions::default(), &Silent)?;
        if !self.full {
            let undone = self.project.picture()? == after;
            self.step(
                "safepoint undo",
                &["even the mess can be had back: the state before it was kept".to_owned()],
            );
            return Ok(restored && undone);
        }
        self.step("safepoint undo", &["the rollback is undone: the state before it was kept".to_owned()]);
        let undone = self.compare("Is the mess back, every byte of it?", &after, "in the mess")?;
        self.begin();
        self.manager.redo(&workspace, &RollbackOptions::default(), &Silent)?;
        self.step("safepoint redo", &["and done again".to_owned()]);
        let redone = self.compare("And the same once more?", &before, "before the disaster")?;
        let planned = self.tell_plan(&workspace)?;
        Ok(restored && undone && redone && planned)
    }

    fn setting(&self) -> Result<Picture, Problem> {
        self.out.remark(
            self.out.colours.dim("All of this happens in a temporary folder. Your files are not touched."),
        );
        if !self.full {
            self.out.remark("");
        }
        self.begin();
        self.project.make()?;
        let before = self.project.picture()?;
        let what = format!(
            "{}: code, a script, a link, a .git folder, a build folder",
            counted(before.len() as u64, "file or folder", "files and folders")
        );
        if self.full {
            self.step("A small project", &[what]);
        }
        Ok(before)
    }

    fn checkpoint(&self, workspace: &Workspace) -> Result<safepoint::model::CheckpointId, Problem> {
        self.begin();
        let options = CreateOptions { label: Some("all tests pass".to_owned()), ..CreateOptions::default() };
        let created = self.manager.create(workspace, &options, &Silent)?;
        let record = &created.checkpoint;
        let left_out = created.coverage.skipped.iter().map(|skipped| skipped.path.to_string());
        let what = format!(
            "{} kept, {} in the store; left out: {}",
            counted(record.files.count, "file or folder", "files and folders"),
            size(record.size_bytes),
            left_out.collect::<Vec<_>>().join(", ")
        );
        self.step("safepoint create -m \"all tests pass\"", &[what]);
        Ok(record.id)
    }

    fn disaster(&self, workspace: &Workspace) -> Result<Picture, Problem> {
        self.begin();
        self.project.wreck()?;
        let after = self.project.picture()?;
        if self.full {
            self.step(
                "Then an agent has a bad day",
                &["rm -rf src, a wrong edit, a lost permission, junk files".to_owned()],
            );
            self.begin();
        }
        let status = self.manager.status(workspace, &Silent)?;
        let count = counted(status.changes.len() as u64, "path", "paths");
        let mut lines = vec![format!("{count} changed since \"all tests pass\":")];
        let changes = &status.changes;
        let shown = folded(changes.iter().map(|change| (&change.path, change.kind)));
        // The short tour fits 24 lines, with the prompt.
        let most = if self.full { usize::MAX } else { SHOWN_MAX };
        lines.extend(shown.iter().take(most).map(|line| (&changes[line.item], line.tail())).map(
            |(change, tail)| format!("  {}", change_line(self.out, change, &change.path.to_string(), &tail)),
        ));
        if shown.len() > most {
            lines.push(format!("  and {} more", shown.len() - most));
        }
        let title =
            if self.full { "safepoint status" } else { "Then an agent has a bad day: safepoint status" };
        self.step(title, &lines);
        Ok(after)
    }

    /// Compares the project with a picture, byte for byte, without Safepoint.
    fn compare(&self, question: &str, wanted: &Picture, when: &str) -> Result<bool, Problem> {
        self.compare_with(&self.project, question, wanted, when)
    }

    /// Compares any folder.
    fn compare_with(
        &self,
        project: &Project,
        question: &str,
        wanted: &Picture,
        when: &str,
    ) -> Result<bool, Problem> {
        self.begin();
        let found = project.picture()?;
        let same = found == *wanted;
        let answer = if same {
            let bytes: usize = found.values().map(|(_, content)| content.len()).sum();
            let all = counted(found.len() as u64, "file or folder", "files and folders");
            self.out.colours.green(format!("yes: {all}, {} and every mode as {when}", size(bytes as u64)))
        } else {
            self.out.colours.red("no")
        };
        self.step(question, &[answer]);
        Ok(same)
    }

    fn begin(&self) {
        self.began.replace(Instant::now());
    }

    /// Ends a step and prints it.
    fn step(&self, title: &str, lines: &[String]) {
        let ms = self.began.borrow().elapsed().as_secs_f64() * 1000.0;
        let number = self.steps.borrow().len() + 1;
        let colours = self.out.colours;
        let time = colours.dim(format!("{ms:>7.1} ms"));
        if self.full {
            self.out.line("");
        }
        self.out.line(format!("{number:>2}  {}{time}", colours.bold(format!("{title:<62}"))));
        lines.iter().for_each(|line| self.out.line(format!("    {line}")));
        let ms = (ms * 1000.0).round() / 1000.0;
        self.steps
            .borrow_mut()
            .push(json!({ "step": number, "title": title, "lines": lines, "duration_ms": ms }));
    }
}

fn farewell(out: &Printer, kept: Option<&Path>, full: bool) {
    out.line("");
    match kept {
        Some(path) => out.line(format!("The folder is still there: {}", path.display())),
        None => out.line("The temporary folder was deleted."),
    }
    if !full {
        out.line(format!("All of it, with a plan: {}", out.colours.cyan("safepoint demo --full")));
    }
    out.line(format!("In your own project: {}", out.colours.cyan("safepoint create -m \"before I start\"")));
    out.line(format!("For every turn of your coding agent: {}", out.colours.cyan("safepoint install")));
}
