//! `repair`: repairs what can be repaired, and says what is lost, path by path.

use crate::commands::create::{SHOWN_MAX, more};
use crate::commands::recover;
use crate::commands::validate::sentence;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{counted, printable};
use crate::{commands::Context, render::exit};
use safepoint::{Failure, FailureKind, Rebuilt, Repair};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let (manager, opened) = context.surroundings.open_for_repair(&context.progress)?;
    let mut repair = manager.upkeep().repair(&context.progress)?;
    if opened.kept_aside.is_some() {
        repair.catalog = opened;
    }
    let errors: Vec<String> = repair.errors.iter().cloned().chain(repair.lost.iter().map(sentence)).collect();
    recover::tell(&context.out, &repair.recovered);
    tell(&context.out, &repair, &errors);
    let data = json!({
        "is_whole": repair.is_whole(),
        "damaged_objects": repair.damaged_objects,
        "stored_anew": repair.stored_anew,
        "quarantined": repair.quarantined,
        "quarantine": json::bytes(repair.quarantine.as_os_str().as_bytes()),
        "skipped": repair.skipped,
        "lost": repair.lost.iter().map(json::damaged).collect::<Vec<_>>(),
        "errors": repair.errors,
        "restorable": repair.restorable,
        "catalog": {
            "found": if repair.catalog.kept_aside.is_some() { "damaged" } else { repair.catalog.found.as_str() },
            "restored": repair.catalog.restored,
            "incomplete": repair.catalog.incomplete,
            "unknown_records": repair.catalog.unknown_records,
            "unknown": repair.catalog.unknown,
            "kept_aside": repair.catalog.kept_aside.as_ref().map(|path| json::bytes(path.as_os_str().as_bytes())),
        },
    });
    if repair.is_whole() {
        return Ok(Reply::done(data));
    }
    let failure = Failure {
        code: "damaged",
        kind: FailureKind::Damaged,
        message: format!("{} could not be repaired", counted(errors.len() as u64, "thing", "things")),
        causes: errors,
        hints: vec![format!(
            "{} can be restored whole; delete those that are of no use any more.",
            counted(repair.restorable.len() as u64, "checkpoint", "checkpoints")
        )],
    };
    Ok(Reply { data, exit: exit::code(failure.kind), failure: Some(failure) })
}

/// Prints the effect on the catalog.
fn tell_catalog(out: &Printer, catalog: &Rebuilt) {
    if let Some(aside) = &catalog.kept_aside {
        let aside = printable(&aside.display().to_string());
        out.line(format!("The catalog was damaged and is kept as {aside}; a new one is in its place."));
    }
    if !catalog.restored.is_empty() {
        let count = counted(catalog.restored.len() as u64, "checkpoint is", "checkpoints are");
        out.line(format!("{count} on record again."));
    }
    if !catalog.incomplete.is_empty() {
        let count = counted(catalog.incomplete.len() as u64, "checkpoint was", "checkpoints were");
        out.warn(format!("{count} not brought back: parts of them are missing"));
    }
    if catalog.unknown_records > 0 {
        let count = counted(catalog.unknown_records, "record", "records");
        out.warn(format!("{count} can only be read by a newer Safepoint"));
    }
    catalog.unknown.iter().for_each(|unknown| out.note(format!("not known: {unknown}")));
}

fn tell(out: &Printer, repair: &Repair, errors: &[String]) {
    tell_catalog(out, &repair.catalog);
    for skipped in &repair.skipped {
        out.warn(format!("not looked at for what is missing: {}", printable(skipped)));
    }
    if repair.damaged_objects > 0 {
        out.line(format!("{} could not be read.", counted(repair.damaged_objects, "object", "objects")));
    }
    if repair.stored_anew > 0 {
        let objects = counted(repair.stored_anew, "object was", "objects were");
        out.line(format!("{objects} stored anew from workspaces that still have the content."));
    }
    if !repair.quarantined.is_empty() {
        let packs = counted(repair.quarantined.len() as u64, "pack", "packs");
        let place = printable(&repair.quarantine.display().to_string());
        out.line(format!("{packs} with damage put aside in {place}."));
        out.remark("It counts towards the cap; delete it when it is no longer needed.");
    }
    let whole = counted(repair.restorable.len() as u64, "checkpoint", "checkpoints");
    if errors.is_empty() {
        out.line(format!("{} {whole}, and all can be restored.", out.colours.green("Subject:")));
        return;
    }
    let lost = counted(errors.len() as u64, "thing is", "things are");
    out.line(format!("{} {lost} beyond repair:", out.colours.red("Lost:")));
    errors.iter().take(SHOWN_MAX).for_each(|error| out.line(format!("    {}", printable(error))));
    more(out, errors.len());
    out.line(format!("{whole} can be restored whole."));
}
