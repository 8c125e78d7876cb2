//! The words before the cursor: the command, its arguments so far, and what the next word may be.

use clap::{Arg, Command};

/// Sort of values that are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Files,
    Checkpoints,
    CheckpointsOfPlan,
    Plans,
    Sessions,
    Agents,
    Remotes,
}

/// Meaning of the words before the cursor.
pub(super) struct Line<'a> {
    /// Names of the command, without the program.
    names: Vec<&'a str>,
    command: &'a Command,
    /// Positional arguments so far.
    pub(super) positionals: Vec<String>,
    /// Options so far that have a value, by their ids.
    pub(super) options: Vec<(String, String)>,
    /// Option whose value is next.
    open: Option<&'a Arg>,
    /// True after `--`.
    only_values: bool,
}

/// Meanings that the word under the cursor may have.
pub(super) struct Wanted<'w> {
    /// The part of it that is typed, and what stands before that in the same word.
    pub(super) begun: &'w str,
    pub(super) prefix: String,
    /// Words that are known without a look at the home, with their descriptions.
    pub(super) fixed: Vec<(String, String)>,
    pub(super) kinds: Vec<Kind>,
}

impl<'a> Line<'a> {
    pub(super) fn read(whole: &'a Command, words: &[String]) -> Self {
        let mut line = Line {
            names: Vec::new(),
            command: whole,
            positionals: Vec::new(),
            options: Vec::new(),
            open: None,
            only_values: false,
        };
        words.iter().for_each(|word| line.take(word));
        line
    }

    fn take(&mut self, word: &str) {
        if let Some(option) = self.open {
            // Bash takes `=` for a word of its own.
            if word != "=" {
                self.options.push((option.get_id().to_string(), word.to_owned()));
                self.open = None;
            }
        } else if self.only_values {
            self.positionals.push(word.to_owned());
        } else if word == "--" {
            self.only_values = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            self.option(self.long(name), value);
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for (at, letter) in letters.char_indices() {
                let option = self.command.get_arguments().find(|arg| arg.get_short() == Some(letter));
                let rest = &letters[at + letter.len_utf8()..];
                self.option(option, (!rest.is_empty()).then_some(rest));
                if option.is_some_and(|option| option.get_action().takes_values()) {
                    break;
                }
            }
        } else if let Some(below) = self.subcommand(word) {
            self.names.push(below.get_name());
            self.command = below;
        } else {
            self.positionals.push(word.to_owned());
        }
    }

    fn subcommand(&self, word: &str) -> Option<&'a Command> {
        self.positionals.is_empty().then(|| self.command.find_subcommand(word)).flatten()
    }

    fn long(&self, name: &str) -> Option<&'a Arg> {
        self.command.get_arguments().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        })
    }

    fn option(&mut self, option: Option<&'a Arg>, value: Option<&str>) {
        let Some(option) = option.filter(|option| option.get_action().takes_values()) else { return };
        match value {
            Some(value) => self.options.push((option.get_id().to_string(), value.to_owned())),
            None => self.open = Some(option),
        }
    }

    /// Understands the word under the cursor.
    pub(super) fn wanted<'w>(&self, word: &'w str) -> Wanted<'w> {
        let none = Wanted { begun: word, prefix: String::new(), fixed: Vec::new(), kinds: Vec::new() };
        if let Some(option) = self.open {
            let begun = if word == "=" { "" } else { word };
            return Wanted { begun, ..self.values(option, none) };
        }
        if let Some((name, begun)) = word.strip_prefix("--").and_then(|long| long.split_once('='))
            && !self.only_values
        {
            let Some(option) = self.long(name) else { return none };
            return Wanted { begun, prefix: format!("--{name}="), ..self.values(option, none) };
        }
        if word.starts_with('-') && !self.only_values {
            return Wanted { fixed: self.flags(), ..none };
        }
        let mut wanted = match self.positional() {
            Some(arg) => self.values(arg, none),
            None => none,
        };
        if self.positionals.is_empty() && !self.only_values {
            wanted.fixed.extend(subcommands(self.command));
        }
        wanted
    }

    /// The positional argument that is next.
    fn positional(&self) -> Option<&'a Arg> {
        let all = || self.command.get_positionals();
        if self.only_values
            && let Some(last) = all().find(|arg| arg.is_last_set())
        {
            return Some(last);
        }
        let several = |arg: &&Arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        let own = || all().filter(|arg| !arg.is_last_set());
        own().nth(self.positionals.len()).or_else(|| own().last().filter(several))
    }

    fn flags(&self) -> Vec<(String, String)> {
        let shown = self.command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional());
        let help = |arg: &Arg| arg.get_help().map(ToString::to_string).unwrap_or_default();
        shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), help(arg)))).collect()
    }

    /// Values of an argument: those that it lists, or those that the home has.
    fn values<'w>(&self, arg: &Arg, none: Wanted<'w>) -> Wanted<'w> {
        let listed = arg.get_possible_values();
        let listed = listed.iter().filter(|value| !value.is_hide_set());
        let help = |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string);
        let mut fixed: Vec<(String, String)> =
            listed.map(|value| (value.get_name().to_owned(), help(value).unwrap_or_default())).collect();
        let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        if name == "COMMAND|DIR" {
            let mut whole = <crate::args::Arguments as clap::CommandFactory>::command();
            whole.build();
            fixed.extend(subcommands(&whole));
        }
        Wanted { fixed, kinds: self.kinds(arg, name), ..none }
    }

    /// The sorts of values that an argument takes, by its name.
    fn kinds(&self, arg: &Arg, name: &str) -> Vec<Kind> {
        let in_group = self.names.first().copied().unwrap_or_default();
        match (arg.get_long(), name) {
            (Some("session-id"), _) => vec![Kind::Sessions],
            (Some("plan"), _) => vec![Kind::Plans],
            (Some("checkpoint-id"), _) => vec![Kind::Checkpoints],
            (Some("agent"), _) => vec![Kind::Agents],
            (_, "CHECKPOINT|PATH") => vec![Kind::Checkpoints, Kind::Files],
            (None, "CHECKPOINT") => vec![Kind::CheckpointsOfPlan],
            (_, "REMOTE") => vec![Kind::Remotes],
            (None, "PLAN") => vec![Kind::Plans],
            (_, "PATH" | "DIR" | "FILE" | "COMMAND|DIR") => vec![Kind::Files],
            (None, "NAME") if in_group == "agent" && self.names.get(1) != Some(&"register") => {
                vec![Kind::Agents]
            }
            (None, "ID") if in_group == "session" => vec![Kind::Sessions],
            (None, "ID" | "A" | "B") if in_group != "plan" => vec![Kind::Checkpoints],
            _ => Vec::new(),
        }
    }
}

fn subcommands(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    let about = |below: &Command| below.get_about().map(ToString::to_string).unwrap_or_default();
    shown.map(|below| (below.get_name().to_owned(), about(below))).collect()
}
