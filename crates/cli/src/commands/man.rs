//! `man`: manual pages, from the table of flags.

#![allow(clippy::disallowed_methods, reason = "pages go into the folder that the user names")]

use crate::args::{Arguments, ManArgs, help};
use crate::commands::Context;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::pager::{self, Programs};
use crate::render::terminal::for_shell;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

pub(crate) fn run(context: &Context, args: &ManArgs) -> Result<Reply, Problem> {
    let mut whole = help::grouped(Arguments::command()).disable_help_subcommand(true);
    whole.build();
    if let Some((command, name)) = named(&whole, &args.what) {
        return show(context, command, &name);
    }
    let [folder] = args.what.as_slice() else {
        return Err(Problem::usage(
            "there is no such command",
            "`safepoint --help` lists the commands; name one folder to write all pages into it.",
        ));
    };
    mistyped(context, &whole, folder)?;
    let folder = context.surroundings.directory.join(folder);
    std::fs::create_dir_all(&folder).map_err(|error| Problem::not_written(&folder, &error))?;
    let mut written = vec![write(&folder, &whole, "safepoint")?];
    write_below(&folder, &whole, "safepoint", &mut written)?;
    written.iter().for_each(|path| context.out.remark(path));
    Ok(Reply::done(json!({ "page": null, "files": written })))
}

/// Refuses a word that is nearly the name of a command and no folder yet.
fn mistyped(context: &Context, whole: &Command, word: &Path) -> Result<(), Problem> {
    const LETTERS_WRONG_MAX: usize = 2;
    let text = word.to_string_lossy();
    if text.contains('/') || context.surroundings.directory.join(word).is_dir() {
        return Ok(());
    }
    let wrong = |command: &&Command| strsim::damerau_levenshtein(command.get_name(), &text);
    let nearest = whole.get_subcommands().filter(|command| !command.is_hide_set()).min_by_key(wrong);
    match nearest.filter(|command| wrong(command) <= LETTERS_WRONG_MAX) {
        None => Ok(()),
        Some(command) => {
            let hint = format!("Its page: safepoint man {}", command.get_name());
            let problem = Problem::usage(format!("{text:?} is nearly the name of a command"), &hint);
            Err(problem
                .hint(format!("All pages in a folder of this name: safepoint man ./{}", for_shell(&text))))
        }
    }
}

/// The pages of the commands in a group, each followed by those in it.
fn write_below(
    folder: &Path,
    group: &Command,
    above: &str,
    written: &mut Vec<String>,
) -> Result<(), Problem> {
    for command in
        group.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        let name = format!("{above}-{}", command.get_name());
        written.push(write(folder, command, &name)?);
        write_below(folder, command, &name, written)?;
    }
    Ok(())
}

/// Returns the command that these words name, and the name of its page. No word names the program itself.
fn named<'a>(whole: &'a Command, words: &[PathBuf]) -> Option<(&'a Command, String)> {
    words.iter().try_fold((whole, "safepoint".to_owned()), |(above, name), word| {
        let word = word.to_str()?;
        let command = above.find_subcommand(word)?;
        Some((command, format!("{name}-{}", command.get_name())))
    })
}

/// Prints a page; on a terminal through `man`, or as help where that program is missing.
fn show(context: &Context, command: &Command, name: &str) -> Result<Reply, Problem> {
    let page = page(command, name);
    let text = String::from_utf8_lossy(&page).into_owned();
    if context.out.is_json() {
    } else if !io::stdout().is_terminal() {
        // A failure is reported at the end.
        let _ = context.out.bytes().write_all(&page);
    } else if !through_man(context, &page) {
        let _ = context.out.bytes().write_all(command.clone().render_long_help().to_string().as_bytes());
    }
    Ok(Reply::done(json!({ "page": text, "files": [] })))
}

/// Returns true if the program `man` has shown the page.
fn through_man(context: &Context, page: &[u8]) -> bool {
    let Some(mut command) = Programs::new(&context.surroundings).command("man") else { return false };
    if let Some(pager) = pager::for_man(context.out.is_paged()) {
        command.env("MANPAGER", pager);
    }
    let Ok(mut viewer) = command.args(["-l", "-"]).stdin(Stdio::piped()).spawn() else { return false };
    let sent = viewer.stdin.take().is_some_and(|mut input| input.write_all(page).is_ok());
    viewer.wait().is_ok_and(|status| sent && status.success())
}

/// One page, in the language of man(7).
fn page(command: &Command, name: &str) -> Vec<u8> {
    let command = command.clone().name(name.to_owned()).display_name(name.to_owned());
    let version = concat!("safepoint ", env!("CARGO_PKG_VERSION"));
    let mut page = Vec::new();
    // Writing into memory does not fail.
    let _ =
        Man::new(command).title(name.to_uppercase()).source(version).manual("Safepoint").render(&mut page);
    with_examples(&String::from_utf8_lossy(&page)).into_bytes()
}

/// Titles the examples below the flags as manuals do, and keeps their columns. The text there has no title otherwise.
fn with_examples(page: &str) -> String {
    let Some((above, below)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let (notes, rest) = below.split_once("Examples:\n").unwrap_or((below, ""));
    let (examples, rest) =
        rest.split_once(".SH ").map_or((rest, None), |(examples, rest)| (examples, Some(rest)));
    let mut whole = above.to_owned();
    if !notes.trim().is_empty() {
        whole.push_str(&format!(".SH NOTES\n{}\n", notes.trim_end()));
    }
    whole.push_str(&format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", examples.trim_end()));
    rest.into_iter().for_each(|rest| whole.push_str(&format!(".SH {rest}")));
    whole
}

fn write(folder: &Path, command: &Command, name: &str) -> Result<String, Problem> {
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)).map_err(|error| Problem::not_written(&path, &error))?;
    Ok(path.to_string_lossy().into_owned())
}
