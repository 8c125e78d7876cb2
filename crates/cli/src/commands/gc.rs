//! `gc`: frees the space of unreferenced objects.

use crate::args::GcArgs;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, size};
use crate::{commands::Context, render::exit};
use safepoint::{Collected, Outcome, Thoroughness};
use serde_json::{Value, json};

pub(crate) fn run(context: &Context, args: &GcArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    if args.accept_catalog {
        manager.upkeep().accept_catalog()?;
        context.surroundings.note_standing(&manager);
    }
    let how = if args.thorough { Thoroughness::Everything } else { Thoroughness::Usual };
    let collected = manager.upkeep().collect(how, &context.progress)?;
    if collected.outcome == Outcome::Busy {
        return Err(Problem::busy("another Safepoint is freeing space"));
    }
    tell(&context.out, &collected, how);
    let exit = if collected.outcome == Outcome::Done { exit::DONE } else { exit::IN_PART };
    Ok(Reply { data: json!({ "collected": value(&collected) }), exit, failure: None })
}

/// Result of a collection as JSON.
pub(crate) fn value(collected: &Collected) -> Value {
    json!({
        "outcome": match collected.outcome {
            Outcome::Done => "done",
            Outcome::Busy => "busy",
            Outcome::Stopped => "stopped",
        },
        "packs": collected.packs,
        "objects": collected.objects,
        "freed_bytes": collected.freed_bytes,
        "dead_bytes": collected.dead_bytes,
        "packs_left": collected.packs_left,
    })
}

/// Minimum number of bytes to report.
const WORTH_SAYING: u64 = 100_000;

/// Prints the result.
pub(crate) fn tell(out: &Printer, collected: &Collected, how: Thoroughness) {
    let objects = counted(collected.objects, "object", "objects");
    out.line(match (collected.objects, collected.freed_bytes) {
        (0, 0) => "Nothing to free.".to_owned(),
        (_, freed) => format!("Freed {}: {objects} that no checkpoint needed.", size(freed)),
    });
    if collected.outcome != Outcome::Done {
        out.warn("not everything could be freed: other processes used the store, or you asked to stop. Run `safepoint gc` again");
    }
    if collected.packs_left > 0 {
        let packs = counted(collected.packs_left, "pack was", "packs were");
        out.warn(format!("{packs} left as before: another process writes to them, or they are damaged"));
    }
    if collected.dead_bytes >= WORTH_SAYING && how == Thoroughness::Usual {
        out.remark(format!(
            "{} more is too thinly spread to be worth the work; --thorough frees it too.",
            size(collected.dead_bytes)
        ));
    }
}
