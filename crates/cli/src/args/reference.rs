//! Reference of all commands, `docs/cli.md`: built from the argument table and compared with the page.

#![allow(clippy::disallowed_methods, reason = "a test that can write the page")]

use crate::args::Arguments;
use crate::args::help::{COLUMNS_MAX, groups, wrapped};
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
/// Environment variable that writes the page instead of comparing it.
const UPDATE: &str = "SAFEPOINT_UPDATE_DOCS";

fn reference() -> String {
    let mut whole = Arguments::command().disable_help_subcommand(true);
    whole.build();
    let mut page = String::from(
        "# Command reference\n\n<!-- Built from the argument table: SAFEPOINT_UPDATE_DOCS=1 cargo test --bin safepoint reference -->\n\n\
         The same as `safepoint COMMAND --help`. [checkpointing.md](checkpointing.md) explains the commands,\n\
         [errors.md](errors.md) lists exit codes, [schemas](schemas/README.md) describes the JSON.\n\n",
    );
    page.push_str("## Options of every command\n\n");
    options(&mut page, whole.get_arguments().filter(|arg| arg.is_global_set()));
    for (title, commands) in groups(&whole) {
        let _ = write!(page, "\n## {title}\n");
        commands.into_iter().for_each(|command| section(&mut page, command, "safepoint"));
    }
    page
}

fn below(page: &mut String, group: &Command, above: &str) {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    group.get_subcommands().filter(shown).for_each(|command| section(page, command, above));
}

fn section(page: &mut String, command: &Command, above: &str) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(page, "\n### {name}\n\n{about}\n\n```text\n{usage}\n```\n");
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        let _ = write!(page, "\nAlso: `{}`.\n", aliases.join("`, `"));
    }
    let own: Vec<&Arg> =
        command.get_arguments().filter(|arg| !arg.is_global_set() && !arg.is_hide_set()).collect();
    if !own.iter().all(|arg| arg.get_id() == "help") {
        page.push('\n');
        options(page, own.into_iter());
    }
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        let (notes, examples) = help.split_once("Examples:\n").unwrap_or((&help, ""));
        if !notes.trim().is_empty() {
            let lines = notes.trim().lines().flat_map(|line| wrapped(line, COLUMNS_MAX));
            let _ = write!(page, "\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        }
        if !examples.is_empty() {
            let lines: Vec<String> = examples.trim_end().lines().map(example).collect();
            let _ = write!(page, "\n```sh\n{}\n```\n", lines.join("\n"));
        }
    }
    below(page, command, &name);
}

/// An example for a shell, with its remark as a comment.
fn example(line: &str) -> String {
    let line = line.strip_prefix("  ").unwrap_or(line);
    match line.split_once("   ") {
        Some((command, remark)) => {
            format!(
                "{command}{}# {}",
                " ".repeat(3 + remark.len() - remark.trim_start().len()),
                remark.trim_start()
            )
        }
        None => line.to_owned(),
    }
}

fn options<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    page.push_str("| option | meaning |\n|---|---|\n");
    for arg in args.filter(|arg| arg.get_id() != "help" && arg.get_id() != "version") {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> =
            arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        let values = if values.is_empty() || !arg.get_action().takes_values() {
            String::new()
        } else {
            format!(". Values: {}", values.join(", "))
        };
        let text = format!("{help}{values}").replace('|', "\\|").replace('\n', " ");
        let short = arg.get_short().filter(|_| arg.get_long().is_some());
        let shown = short.map_or_else(String::new, |short| format!("-{short}, ")) + &arg.to_string();
        let shown = shown.replace('|', "\\|");
        let _ = writeln!(page, "| `{shown}` | {text} |");
    }
}

#[test]
fn the_reference_page_is_what_the_argument_table_says() {
    let page = reference();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(kept == page, "docs/cli.md is out of date: {UPDATE}=1 cargo test --bin safepoint reference");
}
