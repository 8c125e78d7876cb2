//! The first checkpoint of a large folder: shows what it is about to read, and offers to leave folders out.
//!
//! On a terminal it asks and writes the answer into `.safepointignore`; elsewhere it warns and goes on.

use crate::commands::Context;
use crate::context::bulk_limits;
use crate::problem::Problem;
use crate::render::consent::{can_ask, line};
use crate::render::terminal::{counted, size};
use safepoint::{Bulk, BulkyFolder, CheckpointManager, Workspace};

const RULES: &str = ".safepointignore";

/// Shows the size of a large folder, and leaves out what the user chooses.
pub(super) fn offer(
    context: &Context,
    manager: &CheckpointManager,
    workspace: &Workspace,
) -> Result<(), Problem> {
    let Some(bulk) = manager.workspaces().bulk(workspace, bulk_limits(), &context.progress)? else {
        return Ok(());
    };
    let least = if bulk.is_complete { "" } else { "at least " };
    let entries = counted(bulk.entries, "file or folder", "files and folders");
    let about = format!("the first checkpoint reads {least}{entries}, {}", size(bulk.bytes));
    if !can_ask(context) || context.yes || context.out.quiet || bulk.folders.is_empty() {
        let known: Vec<String> = bulk.folders.iter().map(described).collect();
        context.out.warn(match known.is_empty() {
            true => format!("{about}; to leave folders out, list them in {RULES}"),
            false => format!("{about}; to leave folders out, list them in {RULES}: {}", known.join(", ")),
        });
        return Ok(());
    }
    context.out.note(format!("Note: {about}. Folders that can be left out of checkpoints:"));
    for (number, folder) in bulk.folders.iter().enumerate() {
        context.out.note(format!("  {}  {}", number + 1, described(folder)));
    }
    let chosen = choose(context, &bulk)?;
    if !chosen.is_empty() {
        manager.workspaces().leave_out(workspace, &chosen)?;
        let them = chosen.join(", ");
        context
            .out
            .note(format!("Added to {RULES}: {them}. Checkpoints and rollbacks ignore these folders."));
    }
    Ok(())
}

fn described(folder: &BulkyFolder) -> String {
    let entries = counted(folder.entries, "entry", "entries");
    format!("{} ({entries}, {})", folder.pattern, size(folder.bytes))
}

/// Asks until the answer makes sense.
fn choose(context: &Context, bulk: &Bulk) -> Result<Vec<String>, Problem> {
    loop {
        let typed = line(context, "Leave out which? [numbers, all, or Enter for none]")?;
        if let Some(chosen) = understood(&typed, &bulk.folders) {
            return Ok(chosen);
        }
        context.out.note("Type numbers from the list, as in: 1 2");
    }
}

/// Returns the patterns that an answer names; `None` if it makes no sense.
fn understood(typed: &str, folders: &[BulkyFolder]) -> Option<Vec<String>> {
    match typed.to_lowercase().as_str() {
        "" | "n" | "no" | "none" => return Some(Vec::new()),
        "a" | "all" => return Some(folders.iter().map(|folder| folder.pattern.clone()).collect()),
        _ => {}
    }
    let words = typed.split([' ', ',']).filter(|word| !word.is_empty());
    let number = |word: &str| word.parse::<usize>().ok()?.checked_sub(1);
    words.map(|word| folders.get(number(word)?).map(|folder| folder.pattern.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_folders_of_the_list() {
        let folder = |pattern: &str| BulkyFolder { pattern: pattern.to_owned(), entries: 1, bytes: 1 };
        let folders = [folder("a/"), folder("b/")];
        let named = |typed| understood(typed, &folders);
        assert_eq!(named(""), Some(vec![]));
        assert_eq!(named("2"), Some(vec!["b/".to_owned()]));
        assert_eq!(named("2, 1"), Some(vec!["b/".to_owned(), "a/".to_owned()]));
        assert_eq!(named("All"), Some(vec!["a/".to_owned(), "b/".to_owned()]));
        assert_eq!([named("0"), named("3"), named("y"), named("-1")], [None, None, None, None]);
    }
}
