//! Simple commands: unwrapping of programs that run others, and judgement of the rest.

use super::shell::Word;
use super::{RiskKind, RiskPattern, table};

/// Programs that run the command in their arguments: options that take a value, and operands before it.
#[rustfmt::skip]
const WRAPPERS: &[(&str, &str, usize)] = &[
    ("sudo", "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot", 0),
    ("doas", "-u -C", 0),
    ("env", "-u -C --unset --chdir", 0),
    ("time", "-f -o --format --output", 0),
    ("nohup", "", 0),
    ("nice", "-n --adjustment", 0),
    ("ionice", "-c -n -p --class --classdata", 0),
    ("chrt", "", 1),
    ("taskset", "", 1),
    ("timeout", "-s -k --signal --kill-after", 1),
    ("gtimeout", "-s -k --signal --kill-after", 1),
    ("stdbuf", "-i -o -e --input --output --error", 0),
    ("unbuffer", "", 0),
    ("setsid", "", 0),
    ("builtin", "", 0),
    ("exec", "-a", 0),
    ("xargs", "-I -n -P -L -s -d -a -E --max-args --max-procs --max-lines --replace --delimiter --arg-file", 0),
    ("parallel", "-j -I -a --jobs", 0),
    ("watch", "-n --interval", 0),
    ("flock", "-w -E --timeout --conflict-exit-code", 1),
    ("chroot", "--userspec --groups", 1),
    ("unshare", "", 0),
    ("strace", "-o -e -p -s", 0),
    ("ltrace", "-o -e -p -s", 0),
    ("caffeinate", "-t -w", 0),
    ("busybox", "", 0),
    ("chronic", "", 0),
    ("ts-node", "", 0),
    ("npx", "-p --package", 0),
    ("pnpx", "", 0),
    ("bunx", "", 0),
    ("uvx", "--from --with -p --python", 0),
    ("cross-env", "", 0),
    ("dotenv", "-e -f", 0),
    ("direnv exec", "", 1),
    ("poetry run", "", 0),
    ("pdm run", "", 0),
    ("pipenv run", "", 0),
    ("rye run", "", 0),
    ("hatch run", "", 0),
    ("uv run", "--with --python -p --env-file --directory --project --extra --group", 0),
    ("bundle exec", "", 0),
    ("npm exec", "-p --package -w --workspace", 0),
    ("npm x", "-p --package -w --workspace", 0),
    ("pnpm exec", "", 0),
    ("pnpm dlx", "--package", 0),
    ("yarn exec", "", 0),
    ("yarn dlx", "-p --package", 0),
    ("bun x", "", 0),
    ("mise exec", "", 0),
    ("rustup run", "", 1),
];

const SHELLS: [&str; 8] = ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash"];
const SHELL_VALUED: [&str; 6] = ["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

/// Judgement of a simple command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// No risk is known.
    Harmless,
    /// Risky.
    Risky(RiskKind),
    /// Runs this text.
    Runs(String),
    /// Runs its standard input.
    RunsInput,
}

/// Judges a command by its words, each part that it runs. At most as many results as words.
pub(super) fn judge(words: &[Word], patterns: &[RiskPattern]) -> Vec<Judged> {
    let mut words = words;
    loop {
        let Some((program, arguments)) = words.split_first() else { return Vec::new() };
        if !program.is_known || program.text.contains(['*', '?', '{', '$', '`']) {
            return vec![Judged::Risky(RiskKind::Unknown)];
        }
        let name = program.text.rsplit('/').next().unwrap_or_default();
        if name == "command"
            && arguments.first().is_some_and(|word| ["-v", "-V"].contains(&word.text.as_str()))
        {
            return Vec::new();
        }
        if SHELLS.contains(&name) {
            return vec![shell(arguments)];
        }
        if let Some(judged) = runs_text(name, arguments) {
            return vec![judged];
        }
        if name == "find" || name == "fd" {
            return find(name, arguments, patterns);
        }
        match unwrapped(name, arguments) {
            Some(inner) => words = inner,
            None => return table::kind(name, arguments, patterns).map(Judged::Risky).into_iter().collect(),
        }
    }
}

/// Returns the command inside of a wrapper.
fn unwrapped<'a>(name: &str, arguments: &'a [Word]) -> Option<&'a [Word]> {
    if name == "command" {
        return Some(skip_options(arguments, "", 0));
    }
    let second = arguments.first().map_or("", |word| word.text.as_str());
    WRAPPERS.iter().find_map(|(wrapper, valued, operands)| match wrapper.split_once(' ') {
        None if *wrapper == name => Some(skip_options(arguments, valued, *operands)),
        Some((first, next)) if first == name && next == second => {
            Some(skip_options(&arguments[1..], valued, *operands))
        }
        _ => None,
    })
}

/// Skips options with their values, assignments and the operands of a wrapper.
fn skip_options<'a>(words: &'a [Word], valued: &str, mut operands: usize) -> &'a [Word] {
    let mut rest = words;
    while let Some((first, after)) = rest.split_first() {
        let text = first.text.as_str();
        rest = match text {
            "--" => return after.get(operands..).unwrap_or_default(),
            _ if text.len() > 1 && text.starts_with('-') => {
                let takes = valued.split(' ').any(|option| option == text);
                after.get(usize::from(takes)..).unwrap_or_default()
            }
            _ if is_assignment(text) => after,
            _ if operands > 0 => {
                operands -= 1;
                after
            }
            _ => return rest,
        };
    }
    rest
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Judges a shell: `-c` runs a text, without an operand it runs its input.
fn shell(arguments: &[Word]) -> Judged {
    let mut rest = arguments.iter();
    let mut runs_text = false;
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if ["--version", "--help"].contains(&text) {
            return Judged::Harmless;
        }
        if SHELL_VALUED.contains(&text) {
            rest.next();
        } else if text.len() > 1 && text.starts_with(['-', '+']) && text != "--" {
            let is_cluster = !text.starts_with("--");
            runs_text |= is_cluster && text.contains('c') || text == "--command";
            if is_cluster && text.contains('s') && !runs_text {
                return Judged::RunsInput;
            }
        } else if text == "--" || text == "-" {
        } else {
            return match runs_text {
                true => text_of(word),
                false => Judged::Harmless,
            };
        }
    }
    if runs_text { Judged::Risky(RiskKind::Unknown) } else { Judged::RunsInput }
}

fn text_of(word: &Word) -> Judged {
    if word.is_known { Judged::Runs(word.text.clone()) } else { Judged::Risky(RiskKind::Unknown) }
}

/// Judges programs that run a text in their arguments.
fn runs_text(name: &str, arguments: &[Word]) -> Option<Judged> {
    let after = |options: &[&str]| {
        let at = arguments.iter().position(|word| options.contains(&word.text.as_str()))?;
        Some(arguments.get(at + 1).map_or(Judged::Risky(RiskKind::Unknown), text_of))
    };
    match name {
        "eval" if !arguments.is_empty() => {
            let known = arguments.iter().all(|word| word.is_known);
            let text = arguments.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
            Some(if known { Judged::Runs(text) } else { Judged::Risky(RiskKind::Unknown) })
        }
        "trap" => arguments.iter().find(|word| !word.text.starts_with('-')).map(text_of),
        "su" | "script" | "flock" | "runuser" => after(&["-c", "--command"]),
        "npx" | "npm" => after(&["-c", "--call"]).filter(|_| name == "npx"),
        "env"
            if arguments
                .iter()
                .any(|word| word.text.starts_with("-S") || word.text.starts_with("--split")) =>
        {
            Some(Judged::Risky(RiskKind::Unknown))
        }
        _ => None,
    }
}

/// Judges `find`: its own deleting, and every command that it runs.
fn find(name: &str, arguments: &[Word], patterns: &[RiskPattern]) -> Vec<Judged> {
    let mut found: Vec<Judged> =
        table::kind(name, arguments, patterns).map(Judged::Risky).into_iter().collect();
    let runs = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let mut rest = arguments;
    while let Some(at) = rest.iter().position(|word| runs.contains(&word.text.as_str())) {
        rest = &rest[at + 1..];
        let end = rest.iter().position(|word| word.text == ";" || word.text == "+").unwrap_or(rest.len());
        let inner = &rest[..end];
        // `find -exec find -exec ...`: nothing sensible is nested, and every level would be a level of recursion.
        let nested =
            inner.first().is_some_and(|word| word.text.ends_with("find") || word.text.ends_with("fd"));
        match nested || unwraps_to_find(inner) {
            true => found.push(Judged::Risky(RiskKind::Unknown)),
            false => found.extend(judge(inner, patterns)),
        }
        rest = &rest[end..];
    }
    found
}

/// Returns true if a command runs `find` through wrappers.
fn unwraps_to_find(words: &[Word]) -> bool {
    words.iter().any(|word| matches!(word.text.rsplit('/').next(), Some("find" | "fd")))
}
