//! Table of risky commands, and patterns of the same form by users.

use super::RiskKind;
use super::shell::Word;
use std::fmt;
use std::str::FromStr;

/// Built-in patterns.
///
/// A pattern is a program and words. A word with a dash is an option that the command must have, one with `%`
/// is a text that any argument must contain, and the others are the first operands, in order. `!` before an
/// option or an operand excludes it. `|` separates alternatives of a word, `*` stands for any characters.
#[rustfmt::skip]
const BUILT_IN: &[(RiskKind, &str)] = &[
    (RiskKind::Delete, "rm|rmdir|unlink|shred|srm|trash|rimraf|del"),
    (RiskKind::Delete, "find|fd -delete"),
    (RiskKind::Delete, "rsync --delete*|--remove-source-files"),
    (RiskKind::Delete, "docker|podman volume|system|container|image|network|builder rm|prune"),
    (RiskKind::Delete, "docker|podman rm|rmi"),
    (RiskKind::Delete, "docker|podman compose down|rm -v|--volumes"),
    (RiskKind::Delete, "docker-compose down|rm -v|--volumes"),
    (RiskKind::Delete, "aws s3 rm|rb|mv"),
    (RiskKind::Delete, "aws s3 sync --delete"),
    (RiskKind::Delete, "gsutil rm|rb"),
    (RiskKind::Delete, "make|gmake|just|task clean*|distclean|mrproper|clobber"),
    (RiskKind::Delete, "cargo|go|flutter|dotnet|bazel clean"),

    (RiskKind::Git, "git reset|restore|rebase|filter-branch|filter-repo|read-tree"),
    (RiskKind::Git, "git checkout !-b"),
    (RiskKind::Git, "git clean|rm !-n|--dry-run"),
    (RiskKind::Git, "git stash !list|show"),
    (RiskKind::Git, "git switch -f|-C|--force|--discard-changes|--force-create"),
    (RiskKind::Git, "git push -f|-d|--force*|--delete|--mirror !-n|--dry-run"),
    (RiskKind::Git, "git push %+*"),
    (RiskKind::Git, "git branch -D|-d|-f|-M|--delete|--force"),
    (RiskKind::Git, "git tag -d|-f|--delete|--force"),
    (RiskKind::Git, "git worktree remove|prune"),
    (RiskKind::Git, "git reflog expire|delete"),
    (RiskKind::Git, "git gc --prune*"),
    (RiskKind::Git, "git commit --amend"),
    (RiskKind::Git, "git update-ref|symbolic-ref|replace"),
    (RiskKind::Git, "git submodule deinit|update"),
    (RiskKind::Git, "jj abandon|restore|undo|rebase|squash"),
    (RiskKind::Git, "gh repo delete"),

    (RiskKind::Database, "psql|mysql|mariadb|sqlite3|duckdb|mongosh|mongo|clickhouse-client %drop|delete|truncate|alter|update|insert|create"),
    (RiskKind::Database, "dropdb|dropuser|pg_restore|mysqladmin|mongorestore"),
    (RiskKind::Database, "redis-cli flushall|flushdb|del"),
    (RiskKind::Database, "rails|rake|bin/rails db:*"),
    (RiskKind::Database, "python*|manage.py|django-admin %migrate|flush|reset_db|sqlflush"),
    (RiskKind::Database, "prisma migrate|db"),
    (RiskKind::Database, "drizzle-kit push|migrate|drop"),
    (RiskKind::Database, "knex|sequelize*|typeorm* %migrat*|db:*|schema:*"),
    (RiskKind::Database, "alembic upgrade|downgrade|stamp"),
    (RiskKind::Database, "flask db upgrade|downgrade"),
    (RiskKind::Database, "php artisan migrate*|db:*"),
    (RiskKind::Database, "php %doctrine:*"),
    (RiskKind::Database, "mix ecto.*"),
    (RiskKind::Database, "flyway migrate|clean|repair|undo|baseline"),
    (RiskKind::Database, "liquibase %update|rollback|drop*"),
    (RiskKind::Database, "diesel|sqlx|sea-orm-cli|refinery migration|migrate|database"),
    (RiskKind::Database, "goose|dbmate|migrate|atlas|tern up|down|drop|reset|migrate|rollback|force|schema"),
    (RiskKind::Database, "dotnet ef database"),
    (RiskKind::Database, "supabase db reset|push"),
    (RiskKind::Database, "hasura migrate|metadata"),
    (RiskKind::Database, "npm|pnpm|yarn|bun run *migrat*|db:*"),
    (RiskKind::Database, "make|gmake|just|task *migrat*|db-*|db_*"),

    (RiskKind::Deploy, "terraform|tofu|terragrunt apply|destroy|import|taint"),
    (RiskKind::Deploy, "terraform|tofu|terragrunt state !list|show|pull"),
    (RiskKind::Deploy, "pulumi up|destroy|refresh"),
    (RiskKind::Deploy, "cdk|sst|serverless|sls|eb|sam|copilot deploy|destroy|remove"),
    (RiskKind::Deploy, "kubectl|oc apply|create|delete|replace|patch|scale|drain|edit|set !--dry-run"),
    (RiskKind::Deploy, "kubectl|oc rollout !status|history"),
    (RiskKind::Deploy, "helm install|upgrade|uninstall|rollback|delete !--dry-run"),
    (RiskKind::Deploy, "docker|podman push"),
    (RiskKind::Deploy, "ansible|ansible-playbook|cap|fab|kamal"),
    (RiskKind::Deploy, "vercel|now deploy|--prod|remove|rollback|promote"),
    (RiskKind::Deploy, "vercel --prod"),
    (RiskKind::Deploy, "netlify|firebase|wrangler|fly|flyctl|railway|amplify|surge deploy|publish|up"),
    (RiskKind::Deploy, "heroku %releases:*|apps:destroy|pg:reset|container:release"),
    (RiskKind::Deploy, "gcloud %deploy|delete"),
    (RiskKind::Deploy, "az %delete|deploy*|create"),
    (RiskKind::Deploy, "aws %delete-*|terminate-*|deploy|update-stack|create-stack"),
    (RiskKind::Deploy, "npm|pnpm|yarn|bun|cargo|poetry|uv publish|unpublish|deprecate|yank !--dry-run|-n"),
    (RiskKind::Deploy, "yarn npm publish"),
    (RiskKind::Deploy, "twine upload"),
    (RiskKind::Deploy, "gem push|yank"),
    (RiskKind::Deploy, "gh release create|delete|upload|edit"),
    (RiskKind::Deploy, "npm|pnpm|yarn|bun run deploy*|release*|publish*"),
    (RiskKind::Deploy, "make|gmake|just|task deploy*|release*|publish*"),

    (RiskKind::Permissions, "chmod|chown|chgrp -R|--recursive"),
    (RiskKind::Permissions, "setfacl|chattr|chcon|restorecon -R|--recursive"),

    (RiskKind::Packages, "npm install|i|ci|add|update|up|upgrade|uninstall|remove|rm|un|dedupe|prune"),
    (RiskKind::Packages, "npm audit fix"),
    (RiskKind::Packages, "pnpm|yarn|bun install|i|add|update|up|upgrade|remove|rm|dedupe|prune"),
    (RiskKind::Packages, "ncu|npm-check-updates -u|--upgrade"),
    (RiskKind::Packages, "pip*|pipx|uv install|uninstall|sync|add|remove|lock|pip"),
    (RiskKind::Packages, "python* -m pip"),
    (RiskKind::Packages, "poetry|pdm|pipenv|rye|conda|mamba|pixi install|update|add|remove|lock|sync|uninstall|upgrade"),
    (RiskKind::Packages, "cargo add|remove|rm|update|upgrade|install|uninstall|fix"),
    (RiskKind::Packages, "go get|install"),
    (RiskKind::Packages, "go mod !graph|why|verify"),
    (RiskKind::Packages, "bundle install|update|add|remove|clean"),
    (RiskKind::Packages, "gem install|uninstall|update"),
    (RiskKind::Packages, "composer install|update|require|remove"),
    (RiskKind::Packages, "apt|apt-get|aptitude|dnf|yum|zypper|brew|apk install|remove|purge|upgrade|dist-upgrade|full-upgrade|autoremove|add|del|uninstall|update"),
    (RiskKind::Packages, "pacman -S|-R|-U"),
    (RiskKind::Packages, "pod|mix|dotnet|flutter|dart|swift install|update|deps.*|add|remove|pub|package"),

    (RiskKind::Overwrite, "dd|truncate|mkfs*|wipefs|sponge"),
    (RiskKind::Overwrite, "tee !-a|--append"),
    (RiskKind::Overwrite, "mv !-n|--no-clobber"),
    (RiskKind::Overwrite, "cp|ln|install -f|--force"),
    (RiskKind::Overwrite, "sed|gsed|perl|ruby -i"),
    (RiskKind::Overwrite, "sed|gsed --in-place*"),
    (RiskKind::Overwrite, "patch !--dry-run"),
    (RiskKind::Overwrite, "tar -x|--extract*"),
    (RiskKind::Overwrite, "tar x*"),
    (RiskKind::Overwrite, "unzip -o"),
    (RiskKind::Overwrite, "crontab !-l"),
];

/// Programs whose options before the first operand take a value, with those options.
const VALUED: &[(&str, &str)] = &[
    ("git", "-C -c --git-dir --work-tree --namespace --exec-path --config-env"),
    ("kubectl", "-n --namespace --context --kubeconfig --cluster --user -s --server"),
    ("helm", "-n --namespace --kube-context --kubeconfig"),
    ("docker", "-H --host -c --context --config -l --log-level -f --file -p --project-name"),
    ("npm", "-C --prefix -w --workspace"),
    ("pnpm", "-C --dir -F --filter"),
    ("yarn", "--cwd"),
    ("bun", "--cwd"),
    ("make", "-C -f -I -o -W"),
    ("just", "-f -d --justfile --working-directory"),
    ("cargo", "-C -Z --config --color"),
    ("aws", "--profile --region --output --endpoint-url"),
    ("gh", "-R --repo"),
    ("terraform", "-chdir"),
    ("uv", "--project --directory"),
    ("poetry", "-C -P --directory --project"),
    ("go", "-C"),
    ("php", "-d -c"),
    ("python", "-W -X"),
    ("python3", "-W -X"),
];

/// Pattern of a risky command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskPattern {
    text: String,
}

/// Reason why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RiskPatternError {
    /// No program.
    #[error("the pattern is empty")]
    Empty,
    /// The first word is an option, a text to contain, or excluded.
    #[error("the pattern must start with a program")]
    NoProgram,
    /// An alternative is empty.
    #[error("an alternative of the pattern is empty")]
    EmptyAlternative,
}

impl FromStr for RiskPattern {
    type Err = RiskPatternError;

    fn from_str(text: &str) -> Result<Self, RiskPatternError> {
        let mut words = text.split_whitespace();
        let program = words.next().ok_or(RiskPatternError::Empty)?;
        if program.starts_with(['-', '%', '!']) {
            return Err(RiskPatternError::NoProgram);
        }
        if text
            .split_whitespace()
            .any(|word| word.trim_start_matches(['%', '!']).split('|').any(str::is_empty))
        {
            return Err(RiskPatternError::EmptyAlternative);
        }
        Ok(Self { text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
    }
}

impl fmt::Display for RiskPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the gravest kind of a command. The first word is the program, without its folder.
pub(super) fn kind(program: &str, arguments: &[Word], patterns: &[RiskPattern]) -> Option<RiskKind> {
    let custom = patterns.iter().map(|pattern| (RiskKind::Custom, pattern.text.as_str()));
    let rows = BUILT_IN.iter().copied().chain(custom);
    let mut split = None;
    let matching = rows.filter(|(_, pattern)| {
        let (programs, rest) = pattern.split_once(' ').unwrap_or((pattern, ""));
        if !any(programs, |name| glob(name, program)) {
            return false;
        }
        let split = split.get_or_insert_with(|| Split::new(program, arguments));
        split.matches(rest)
    });
    matching.map(|(kind, _)| kind).min()
}

fn any(alternatives: &str, matches: impl Fn(&str) -> bool) -> bool {
    alternatives.split('|').any(matches)
}

/// Arguments of a command.
struct Split<'a> {
    options: Vec<&'a str>,
    operands: Vec<&'a str>,
    all: &'a [Word],
}

impl<'a> Split<'a> {
    fn new(program: &str, arguments: &'a [Word]) -> Self {
        let valued = VALUED.iter().find(|(name, _)| *name == program).map_or("", |(_, options)| options);
        let (mut options, mut operands) = (Vec::new(), Vec::new());
        let mut words = arguments.iter();
        let mut options_end = false;
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            if options_end || !text.starts_with('-') || text == "-" {
                operands.push(text);
            } else if text == "--" {
                options_end = true;
            } else {
                options.push(text);
                if operands.is_empty() && valued.split(' ').any(|option| option == text) {
                    words.next();
                }
            }
        }
        Self { options, operands, all: arguments }
    }

    fn matches(&self, pattern: &str) -> bool {
        let mut operands = self.operands.iter();
        pattern.split(' ').filter(|word| !word.is_empty()).all(|word| {
            if let Some(texts) = word.strip_prefix('%') {
                return any(texts, |text| self.all.iter().any(|word| contains(&word.text, text)));
            }
            let excluded = word.strip_prefix('!');
            let word = excluded.unwrap_or(word);
            let is_given = if word.starts_with('-') {
                any(word, |option| self.options.iter().any(|given| is_option(given, option)))
            } else {
                operands.next().is_some_and(|operand| any(word, |name| glob(name, operand)))
            };
            is_given != excluded.is_some()
        })
    }
}

/// Returns true if an argument contains the text as a word, in any case. With a star it must match as a whole.
fn contains(argument: &str, text: &str) -> bool {
    if text.contains('*') {
        return glob(text, argument);
    }
    let is_part =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-' || letter == ':';
    argument.split(|letter| !is_part(letter)).any(|word| word.eq_ignore_ascii_case(text))
}

/// Returns true if a given option is the one of a pattern: alone, with a value, or among short ones.
fn is_option(given: &str, option: &str) -> bool {
    let name = given.split_once('=').map_or(given, |(name, _)| name);
    if glob(option, name) {
        return true;
    }
    let mut short = option.strip_prefix('-').unwrap_or_default().chars();
    let (Some(letter), None) = (short.next(), short.next()) else { return false };
    let letters = given.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    letter != '-' && letters.is_some_and(|letters| letters.contains(letter))
}

/// Matches a name with stars, in linear time for one star and without recursion for more.
fn glob(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_pattern_is_valid() {
        for (_, text) in BUILT_IN {
            assert_eq!(text.parse::<RiskPattern>().map(|pattern| pattern.text), Ok((*text).to_owned()));
        }
    }

    #[test]
    fn stars_match_any_characters() {
        for (pattern, name) in [("a*", "a"), ("*", ""), ("a*c", "abbc"), ("a*b*c", "axbxbxc"), ("*x*", "axb")]
        {
            assert!(glob(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*", "b"), ("a*c", "ab"), ("a*b*c", "acb"), ("ab*ba", "aba")] {
            assert!(!glob(pattern, name), "{pattern} {name}");
        }
    }
}
