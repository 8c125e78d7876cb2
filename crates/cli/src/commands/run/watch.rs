//! Checkpoints while a program runs: one whenever its files were quiet after a change, one at its exit.
//!
//! Changes are noticed by inotify, which is a hint; a capture decides, and adds nothing to an unchanged state. Where not all
//! folders can be watched, captures follow at intervals.

use super::as_typed;
use crate::args::RunArgs;
use crate::commands::Context;
use crate::context::quiet_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use safepoint::model::CheckpointId;
use safepoint::model::checkpoint::{Kind, Reason};
use safepoint::{CheckpointManager, CreateOptions, Error, IfUnchanged, Notice, Progress, Silent, Workspace};
use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Interval of captures where changes may go unnoticed.
const BLIND_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after a capture that failed, for example because the program itself uses the workspace.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Watched run.
pub(super) struct Watching<'a> {
    pub(super) manager: &'a CheckpointManager,
    pub(super) workspace: &'a Workspace,
    pub(super) args: &'a RunArgs,
    pub(super) session: Option<&'a str>,
}

impl Watching<'_> {
    /// Waits for the end of the program, and takes checkpoints until then. Failures are retried; the last capture reports them.
    pub(super) fn wait(&self, child: &mut Child, taken: &mut Vec<CheckpointId>) -> io::Result<ExitStatus> {
        let watched = self
            .manager
            .workspaces()
            .watched(self.workspace, |notice| self.follow(child, Some(notice), taken));
        match watched {
            Ok(status) => status,
            Err(_) => self.follow(child, None, taken),
        }
    }

    fn follow(
        &self,
        child: &mut Child,
        mut notice: Option<&mut Notice<'_>>,
        taken: &mut Vec<CheckpointId>,
    ) -> io::Result<ExitStatus> {
        let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let quiet = quiet_time();
        // Changes between the first checkpoint and the first watch count, too.
        let mut due = Some(Instant::now() + quiet);
        loop {
            let is_blind = notice.as_ref().is_none_or(|notice| !notice.is_complete());
            if is_blind {
                due = due.or(Some(Instant::now() + BLIND_INTERVAL));
            }
            let mut handles = vec![PollFd::new(&handle, PollFlags::IN)];
            handles.extend(notice.as_ref().map(|notice| PollFd::new(&**notice, PollFlags::IN)));
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut handles, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !handles[0].revents().is_empty() {
                return child.wait();
            }
            drop(handles);
            if notice.as_mut().is_some_and(|notice| notice.take()) {
                due = Some(Instant::now() + quiet);
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                due = match self.capture("during", &Silent) {
                    Ok(id) => {
                        taken.extend(id);
                        None
                    }
                    Err(_) => Some(Instant::now() + RETRY_INTERVAL),
                };
            }
        }
    }

    /// Takes the checkpoint after the end of the program, and reports.
    pub(super) fn finish(&self, context: &Context, taken: &mut Vec<CheckpointId>) {
        match self.capture("after", &context.progress) {
            Ok(id) => taken.extend(id),
            Err(error) => {
                let text = "the state after the command is not in a checkpoint";
                context.out.warn(format!("{text}: {error}; to take one: safepoint create"));
                // A stop is about the command; what follows is not stopped by it.
                if context.progress.interrupted() {
                    context.progress.forget_stop();
                }
            }
        }
        let count = taken.len() as u64;
        if count > 0 {
            let them = crate::render::terminal::counted(count, "checkpoint", "checkpoints");
            context.out.note(format!("{them} taken during and after the command: safepoint list"));
        }
    }

    /// Takes a checkpoint; `None` if nothing changed.
    fn capture(&self, when: &str, progress: &dyn Progress) -> Result<Option<CheckpointId>, Error> {
        let options = CreateOptions {
            label: Some(format!("{when} {}", as_typed(&self.args.command))),
            kind: Kind::Automatic,
            reason: Reason::SafeState,
            session_id: self.session.map(str::to_owned),
            unchanged: IfUnchanged::Reused,
            ..CreateOptions::default()
        };
        let created = self.manager.create(self.workspace, &options, progress)?;
        Ok((!created.unchanged).then_some(created.checkpoint.id))
    }
}
