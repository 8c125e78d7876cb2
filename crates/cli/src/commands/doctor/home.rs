//! Safepoint's home: owner, permissions and free space.

use super::Check;
use crate::render::terminal::{counted, size};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Free space below which checkpoints may fail.
const ROOM_BYTES_MIN: u64 = 64_000_000;
/// Free space below which a warning is due.
const ROOM_BYTES_LOW: u64 = 1_000_000_000;

/// Problems below a folder.
#[derive(Default)]
struct Findings {
    entries: u64,
    open: Vec<PathBuf>,
    foreign: Vec<PathBuf>,
}

/// Checks that the folder and its contents are private to this user.
pub(super) fn private(home: &Path) -> Check {
    let top = match fs::metadata(home) {
        Ok(top) => top,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::warning(
                "home",
                format!("{} does not exist yet", home.display()),
                "`safepoint create` in a project makes it.",
            );
        }
        Err(error) => return unreadable(home, &error),
    };
    if !top.is_dir() {
        return unreadable(home, &io::ErrorKind::NotADirectory.into());
    }
    let mut findings = Findings::default();
    if let Err(error) = look(home, &home.join("sandboxes"), &mut findings) {
        return unreadable(home, &error);
    }
    judge(home, top.mode() & 0o077 != 0, &findings)
}

fn unreadable(home: &Path, error: &io::Error) -> Check {
    let hint = "Name a folder that you may write with --home or SAFEPOINT_HOME.";
    Check::problem("home", format!("{} cannot be looked at: {error}", home.display()), hint)
}

/// Looks at everything but the copies that plans work in: their files have the modes of the project, and a change of a mode would be
/// part of the result.
fn look(path: &Path, sandboxes: &Path, findings: &mut Findings) -> io::Result<()> {
    let facts = match fs::symlink_metadata(path) {
        // Concurrent commands create and delete drafts.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    findings.entries += 1;
    if facts.uid() != rustix::process::geteuid().as_raw() {
        findings.foreign.push(path.to_owned());
    }
    // The mode of a link has no meaning.
    if !facts.is_symlink() && facts.mode() & 0o077 != 0 {
        findings.open.push(path.to_owned());
    }
    if facts.is_dir() && path.parent() != Some(sandboxes) {
        for entry in fs::read_dir(path)? {
            look(&entry?.path(), sandboxes, findings)?;
        }
    }
    Ok(())
}

fn judge(home: &Path, top_is_open: bool, findings: &Findings) -> Check {
    let place = home.display();
    let such = |paths: &[PathBuf]| paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    if !findings.foreign.is_empty() {
        return Check::problem(
            "home",
            format!(
                "{} in {place} {} not yours, such as {}",
                counted(findings.foreign.len() as u64, "thing", "things"),
                is_or_are(&findings.foreign),
                such(&findings.foreign)
            ),
            format!(
                "Take them over with `chown -R` if they should be, or name another home with --home. {place} may hold another user's checkpoints."
            ),
        );
    }
    if top_is_open {
        return Check::problem(
            "home",
            format!("others could look into {place}, where everything that you checkpointed is"),
            "Opening it has closed it. Change what was secret in your projects, if others use this machine.",
        );
    }
    if !findings.open.is_empty() {
        return Check::warning(
            "home",
            format!(
                "{} in {place} {} readable by others if they get there, such as {}",
                counted(findings.open.len() as u64, "thing", "things"),
                is_or_are(&findings.open),
                such(&findings.open)
            ),
            format!("Close them with `chmod -R go= {place}`."),
        );
    }
    let held = counted(findings.entries, "file or folder", "files and folders");
    Check::ok("home", format!("{place} and all in it ({held}) are yours alone"))
}

fn is_or_are(paths: &[PathBuf]) -> &'static str {
    if paths.len() == 1 { "is" } else { "are" }
}

/// Checks the free space of the home.
pub(super) fn space(home: &Path) -> Check {
    // A missing home will be created in its nearest existing ancestor.
    let there = home.ancestors().find(|above| above.exists()).unwrap_or(home);
    room("home_space", there)
}

/// Checks the free space on the disk of a folder.
pub(super) fn room(name: &'static str, folder: &Path) -> Check {
    match rustix::fs::statvfs(folder) {
        Ok(disk) => judge_room(name, folder, disk.f_bavail.saturating_mul(disk.f_frsize)),
        Err(error) => Check::warning(
            name,
            format!("the disk of {} does not say how much is free: {error}", folder.display()),
            "Look yourself, with `df`.",
        ),
    }
}

fn judge_room(name: &'static str, folder: &Path, free: u64) -> Check {
    let said = format!("{} free on the disk of {}", size(free), folder.display());
    match free {
        ..ROOM_BYTES_MIN => {
            Check::problem(name, said, "Free some space: checkpoints and rollbacks may be refused.")
        }
        ROOM_BYTES_MIN..ROOM_BYTES_LOW => Check::warning(name, said, "Free some space before it is needed."),
        _ => Check::ok(name, said),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn what_others_own_is_worse_than_what_they_may_read() {
        let home = Path::new("/home");
        let path = || vec![PathBuf::from("/home/x")];
        let judged = |top_is_open, open, foreign| {
            judge(home, top_is_open, &Findings { entries: 3, open, foreign }).status
        };
        assert_eq!(judged(false, vec![], vec![]), Health::Ok);
        assert_eq!(judged(false, path(), vec![]), Health::Warning);
        assert_eq!(judged(true, path(), vec![]), Health::Problem);
        assert_eq!(judged(false, vec![], path()), Health::Problem);
    }

    #[test]
    fn the_less_room_the_louder() {
        let judged = |free| judge_room("home_space", Path::new("/home"), free);
        assert_eq!(judged(0).status, Health::Problem);
        assert_eq!(judged(ROOM_BYTES_MIN - 1).status, Health::Problem);
        assert_eq!(judged(ROOM_BYTES_MIN).status, Health::Warning);
        assert_eq!(judged(ROOM_BYTES_LOW - 1).status, Health::Warning);
        assert_eq!(judged(ROOM_BYTES_LOW).status, Health::Ok);
        assert_eq!(judged(5_000_000).message, "5.0 MB free on the disk of /home");
        assert_eq!(room("home_space", Path::new("/nowhere/at/all")).status, Health::Warning);
    }

    #[test]
    fn a_home_that_is_gone_while_it_is_looked_at_is_no_failure() {
        let mut findings = Findings::default();
        look(Path::new("/nowhere/at/all"), Path::new("/nowhere/sandboxes"), &mut findings).unwrap();
        assert_eq!(findings.entries, 0);
    }
}
