//! Warnings and reasons of the library, as sentences for people. Programs get the code beside each.

use crate::render::output::Printer;
use crate::render::terminal::{printable, size};
use safepoint::{
    Failure, GitPlace, Lack, LostAccess, LostAccessKind, LostRepository, NotUndone, NotUndoneReason, Warning,
};
use serde_json::{Value, json};

/// Prints warnings, each with its code for programs.
pub(crate) fn warn(out: &Printer, warnings: &[Warning]) {
    for warning in warnings {
        out.warn_as(warning.code(), printable(&text(warning)));
    }
}

/// Returns the sentences of warnings.
pub(crate) fn texts(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(text).collect()
}

/// Returns the sentence of a warning.
pub(crate) fn text(warning: &Warning) -> String {
    match warning {
        Warning::PrunedForRoom { count } => {
            format!("old checkpoints pruned to make room under the cap: {count}")
        }
        Warning::PrunedUnpublished { count } => format!(
            "the cap was reached: {count} old checkpoints were pruned that no remote has, oldest first"
        ),
        Warning::NearCap { used_bytes, allowed_bytes } => format!(
            "the store uses {} of {}; free space with `safepoint prune` and `safepoint gc`, or raise [store] cap",
            size(*used_bytes),
            size(*allowed_bytes)
        ),
        Warning::NotPruned { why } => format!("old checkpoints could not be pruned: {}", why.message),
        Warning::SpaceNotFreed { why } => {
            format!("the space of deleted checkpoints could not be freed: {}", why.message)
        }
        Warning::LeftoversEnded { count } => {
            format!("processes that a dead run had left were ended: {count}")
        }
        Warning::DisplacedKept { why } => {
            format!("what was displaced is still kept in .safepoint: {}", why.message)
        }
        Warning::DisplacedStuck { path, why } => {
            format!("{path} was displaced and is kept in .safepoint: {why}")
        }
        Warning::ForeignRollback { rollback } => format!(
            ".safepoint/apply-{rollback} belongs to a rollback that another home began and did not finish; it is left alone"
        ),
        Warning::HalfDone => {
            "a rollback of this workspace is half done; the home cannot be written, so that it stays so"
                .to_owned()
        }
        Warning::FolderNotRecovered { why, .. } => why.message.clone(),
        Warning::OtherSession { session } => format!(
            "session {} of the checkpoint is left as it is, because this is another one; --part session restores it",
            session.to_uuid()
        ),
        Warning::SessionMissing { session } => {
            format!("session {} is no longer recorded and is not restored", session.to_uuid())
        }
        Warning::PartNotRegistered { kind, name, program } => format!(
            "{kind} {name} stays as it is: only {program} can put it back, and that is not part of this program"
        ),
        Warning::SettingsIgnored { why: text } | Warning::FromPart { text } => text.clone(),
        Warning::FileSystemLacks(lack) => lacks(*lack).to_owned(),
        Warning::AccessNotRestored(lost) => not_restored(lost),
        Warning::LeaseLost { remote, why } => format!(
            "the commands were ended, since another machine has or may get the line on remote {remote}: {}",
            why.message
        ),
        Warning::LowDiskSpace => "low disk space: an emergency checkpoint was taken".to_owned(),
        Warning::NoEmergencyCheckpoint { why } => {
            format!("the emergency checkpoint could not be taken: {}", why.message)
        }
        Warning::InFolder { root, warning } => format!("{}: {}", root.display(), text(warning)),
        other => in_git(other),
    }
}

/// Returns the sentence of a warning about a repository.
fn in_git(warning: &Warning) -> String {
    match warning {
        Warning::GitMovedByOthers { refs } => {
            format!("another program moved {} in git during the rollback; it stays so", refs.join(", "))
        }
        Warning::GitNotMoved { why } => format!("git is left as it is: {}", in_one_line(why)),
        Warning::GitMovedSinceRollback => "git was moved since that rollback and is not changed".to_owned(),
        Warning::GitMovedSinceCheckpoint { then, now } => format!(
            "git is left as it is: HEAD was {} when the checkpoint was taken, and is {} now",
            place(then),
            place(now)
        ),
        Warning::RepositoryMissing(lost) => missing(lost),
        Warning::NotCommitted { why } => {
            format!("the checkpoint is kept, but no commit was made of it: {}", in_one_line(why))
        }
        Warning::BranchNotMoved { why } => {
            format!("the commit is made and tagged, but the branch was not moved: {}", in_one_line(why))
        }
        Warning::NamesNotCommitted { paths } => not_committed("refuses the names of", paths),
        Warning::HolesNotCommitted { paths } => {
            not_committed("would store every zero of the holes in", paths)
        }
        Warning::TagsNotRemoved { tags, why } => {
            format!("the tag {} is left in the repository: {}", tags.join(", "), in_one_line(why))
        }
        // A newer library may know more of them.
        other => other.code().replace('_', " "),
    }
}

/// Returns the sentence for a missing repository, with the way back.
fn missing(lost: &LostRepository) -> String {
    let way_back = match lost.whole {
        Some(whole) => format!("restore it with: safepoint rollback {whole} --part git"),
        None => from_state(lost),
    };
    format!(
        "the git repository is missing; if it was removed on purpose, put git = \"none\" below [capture] in config.toml; else {way_back}"
    )
}

/// Returns the way back to a repository of which only the state is known.
pub(crate) fn from_state(lost: &LostRepository) -> String {
    let commit: String = lost.commit.iter().flat_map(|sha| sha.chars().take(10)).collect();
    let place = match (&lost.branch, commit.as_str()) {
        (Some(branch), "") => format!(" (branch {branch}, without a commit)"),
        (Some(branch), commit) => format!(" (branch {branch} at {commit})"),
        (None, "") => String::new(),
        (None, commit) => format!(" (detached at {commit})"),
    };
    let id = lost.checkpoint;
    format!(
        "clone it again elsewhere, move that .git here, and restore its state{place}: safepoint rollback {id} --mixed"
    )
}

fn not_committed(what: &str, paths: &[safepoint::model::RelPath]) -> String {
    let names: Vec<String> = paths.iter().take(5).map(ToString::to_string).collect();
    format!("git {what} {} paths, which are not in the commit: {}", paths.len(), names.join(", "))
}

/// Returns a failure and its causes in one line.
pub(crate) fn in_one_line(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    for cause in failure.causes.iter() {
        if !text.ends_with(cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn place(place: &GitPlace) -> String {
    match place {
        GitPlace::Branch { name, commit } => format!("{name} at {commit}"),
        GitPlace::Unborn { name } => format!("{name} without a commit"),
        GitPlace::Detached { commit } => format!("detached at {commit}"),
        _ => "elsewhere".to_owned(),
    }
}

/// Returns the consequence of a feature that a file system lacks.
pub(crate) fn lacks(lack: Lack) -> &'static str {
    match lack {
        Lack::Exchange => {
            "this file system cannot exchange two files atomically: a file is briefly missing during a \
             rollback; recovery after a crash is not affected"
        }
        Lack::NoReplace => {
            "this file system cannot rename without replacing: a file that another program creates at the \
             moment of a rollback could be replaced"
        }
        Lack::Leases => {
            "this file system does not report open files: a file that a rollback replaced is kept until no \
             program can write to it"
        }
        Lack::Case => "this file system treats names that differ only in case as equal",
    }
}

fn not_restored(LostAccess { kind, first, more }: &LostAccess) -> String {
    let (what, why) = match kind {
        LostAccessKind::Acl => {
            ("ACL", "this file system has no ACLs; the group gets no more access than the ACL gave it")
        }
        LostAccessKind::AclOfOthers => ("ACL", "the file belongs to another user and is unchanged"),
        LostAccessKind::Capabilities => {
            ("capabilities", "this requires root (CAP_SETFCAP); run `setcap` again, or roll back as root")
        }
    };
    let more = if *more == 0 { String::new() } else { format!(" and {more} more") };
    format!("cannot restore the {what} of {first}{more}: {why}")
}

/// Returns the sentence for effects that were not undone.
pub(crate) fn reason(reason: &NotUndoneReason) -> String {
    match reason {
        NotUndoneReason::NoCommand => "it has no undo command".to_owned(),
        NotUndoneReason::NotRun => "its undo command was not run, as asked".to_owned(),
        NotUndoneReason::Failed { how } => format!("its undo command failed: {how}"),
        other => other.code().replace('_', " "),
    }
}

/// Returns effects that were not undone, for programs.
pub(crate) fn not_undone(all: &[NotUndone]) -> Value {
    let one = |it: &NotUndone| json!({ "plan": it.plan, "step": it.step, "why": reason(&it.why), "code": it.why.code() });
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    /// A sentence that only repeats the code would mean that a variant was forgotten here.
    #[test]
    fn every_warning_has_a_sentence() {
        let source = include_str!("../../../safepoint/src/warning.rs");
        let start = source.find("pub enum Warning").unwrap();
        let body = &source[start..start + source[start..].find("\n}\n").unwrap()];
        let here = include_str!("warning.rs");
        for line in body.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     ")) {
            let name: String = line.trim().chars().take_while(char::is_ascii_alphanumeric).collect();
            if !name.is_empty() {
                assert!(here.contains(&format!("Warning::{name}")), "{name} has no sentence");
            }
        }
    }
}
