//! The first page of the help: first steps, then the commands by task.

use crate::commands::table::GROUPS;
use crate::render::terminal::width;
use anstyle::{Effects, Style};
use clap::Command;
use clap::builder::StyledStr;
use std::fmt::Write;
use std::io::{self, IsTerminal};

/// Title of commands that are in no group.
pub(crate) const OTHERS: &str = "Others";
/// Widest line without a terminal, as of the other pages.
pub(crate) const COLUMNS_MAX: usize = 100;
/// Narrower descriptions begin below the command.
const COLUMNS_MIN: usize = 30;

/// Shows the commands by task.
pub(crate) fn grouped(command: Command) -> Command {
    let columns = if io::stdout().is_terminal() { width().min(COLUMNS_MAX) } else { COLUMNS_MAX };
    let template = page(&command, columns);
    command.help_template(template)
}

/// The visible commands of a group each, in the order of the help.
pub(crate) fn groups(whole: &Command) -> Vec<(&'static str, Vec<&Command>)> {
    let shown = || whole.get_subcommands().filter(|command| !command.is_hide_set());
    let named = |name: &&str| shown().find(|command| command.get_name() == *name);
    let mut groups: Vec<(&str, Vec<&Command>)> =
        GROUPS.iter().map(|(title, names)| (*title, names.iter().filter_map(named).collect())).collect();
    let is_known = |command: &&Command| GROUPS.iter().any(|(_, names)| names.contains(&command.get_name()));
    groups.push((OTHERS, shown().filter(|command| !is_known(command)).collect()));
    groups.retain(|(_, commands)| !commands.is_empty());
    groups
}

/// The page, with the commands of each group below its title.
fn page(whole: &Command, columns: usize) -> StyledStr {
    let title = Style::new().effects(Effects::BOLD | Effects::UNDERLINE);
    let bold = Style::new().effects(Effects::BOLD);
    let letters = whole.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or(0);
    let mut page = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    if let Some(examples) = whole.get_after_help() {
        let _ = write!(page, "\n{title}First steps:{title:#}\n");
        let examples = examples.to_string().replace("Examples:\n", "");
        let fits = examples.lines().all(|line| line.chars().count() <= columns);
        for line in examples.lines() {
            // On a narrow terminal the remark beside a command goes below it.
            let _ = match line.rsplit_once("   ").filter(|_| !fits) {
                Some((command, remark)) => writeln!(page, "{}\n      {remark}", command.trim_end()),
                None => writeln!(page, "{line}"),
            };
        }
    }
    for (name, commands) in groups(whole) {
        let _ = write!(page, "\n{title}{name}:{title:#}\n");
        for command in commands {
            let (name, about) = (command.get_name(), described(command));
            let beside = columns.saturating_sub(letters + 4);
            let _ = if beside >= COLUMNS_MIN {
                let lines = wrapped(&about, beside).join(&format!("\n{:1$}", "", letters + 4));
                writeln!(page, "  {bold}{name}{bold:#}{:1$}  {lines}", "", letters - name.len())
            } else {
                let lines = wrapped(&about, columns.saturating_sub(6)).join("\n      ");
                writeln!(page, "  {bold}{name}{bold:#}\n      {lines}")
            };
        }
    }
    let more = "`safepoint COMMAND --help` explains a command, `safepoint man COMMAND` shows its page.";
    let more = wrapped(more, columns).join("\n");
    let _ = write!(page, "\n{title}Options of every command:{title:#}\n{{options}}\n\n{more}");
    page.into()
}

/// Its description with the names that it also has.
fn described(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    match aliases.len() {
        0 => about,
        1 => format!("{about} [alias: {}]", aliases[0]),
        _ => format!("{about} [aliases: {}]", aliases.join(", ")),
    }
}

/// Lines of words that fit.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let whole = Arguments::command();
        assert!(groups(&whole).iter().all(|(title, _)| *title != OTHERS), "{:?}", groups(&whole).last());
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert!(named.iter().all(|name| whole.find_subcommand(name).is_some()), "{named:?}");
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), count);
    }

    #[test]
    fn the_first_page_fits_the_terminal() {
        for columns in [48, 80, 100] {
            let page = page(&Arguments::command(), columns).to_string();
            let commands = page.split("First steps").nth(1).unwrap().split("Options").next().unwrap();
            assert!(commands.lines().all(|line| line.chars().count() <= columns), "{commands}");
        }
    }
}
