//! `init`: registers a folder and shows what a checkpoint of it will hold.

use crate::args::InitArgs;
use crate::commands::create::left_out;
use crate::commands::{Context, recover};
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{counted, printable, size};
use safepoint::model::RelPath;
use serde_json::json;

pub(crate) fn run(context: &Context, args: &InitArgs) -> Result<Reply, Problem> {
    let out = &context.out;
    let manager = context.surroundings.open(None)?;
    let folder = match &args.folder {
        Some(folder) => context.surroundings.directory.join(folder),
        None => context.surroundings.directory.clone(),
    };
    let around = if folder.is_dir() { manager.workspaces().around(&folder)? } else { None };
    let workspace = if args.force {
        manager.workspaces().register_anyway(&folder)?
    } else {
        manager.workspaces().register(&folder)?
    };
    let root = workspace.root_path().display().to_string();
    match around {
        Some(known) if known.id == workspace.id => {
            out.line(format!("{} is registered already.", printable(&root)));
        }
        around => {
            out.line(format!("Registered {} as a workspace.", printable(&root)));
            if let Some(around) = around {
                let above = around.root_path().display();
                out.note(format!("It lies in the workspace {above}, whose checkpoints hold it too."));
            }
        }
    }
    let survey = manager.survey(&workspace, &context.progress)?;
    recover::tell(out, &survey.recovered);
    let held = counted(survey.count, "file or folder", "files and folders");
    out.line(format!("A checkpoint of it holds {held}, {}.", size(survey.bytes)));
    left_out(out, &survey.coverage, &RelPath::to_string);
    survey.warnings.iter().for_each(|warning| out.warn(printable(warning)));
    out.remark("Leave more out with a file .safepointignore, written like a .gitignore.");
    out.remark("Take the first one: safepoint create -m \"a label\"");
    Ok(Reply::done(json!({
        "workspace": json::workspace(&workspace),
        "files": { "count": survey.count, "bytes": survey.bytes },
        "coverage": survey.coverage,
    })))
}
