//! `session get` and `session list`.

use super::shape;
use crate::args::session::{ListArgs, OneArgs};
use crate::commands::Context;
use crate::commands::naming::LABEL_LETTERS_MIN;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::output::{Printer, Reply};
use crate::render::terminal::{ago, counted, moment, printable, shortened, width};
use safepoint::model::session::Session;
use serde_json::{Value, json};

/// Maximum request length in lists off a terminal.
const REQUEST_LETTERS: usize = 200;

pub(crate) fn get(context: &Context, args: &OneArgs) -> Result<Reply, Problem> {
    let session = context.surroundings.open(None)?.sessions().known(args.id.parse()?)?;
    let out = &context.out;
    out.line(format!("Session {}", out.colours.bold(session.id.to_uuid())));
    for (name, text) in facts(&session) {
        out.line(format!("  {} {text}", out.colours.dim(format!("{name:<13}"))));
    }
    Ok(super::answer(&session))
}

/// Everything there is to say, name by name.
fn facts(session: &Session) -> Vec<(&'static str, String)> {
    let now = Surroundings::now();
    let when = |at| format!("{}, {}", moment(at), ago(now, at));
    let counted_here = &session.statistics;
    let from = session.paused_from.map(|from| format!(", from {from}")).unwrap_or_default();
    let mut facts = vec![
        (
            "request",
            match session.is_recorded() {
                true => printable(&session.request),
                false => "not on record: only checkpoints name this session".to_owned(),
            },
        ),
        ("status", format!("{}{from}", session.status)),
        ("created", when(session.created_at)),
        ("changed", when(session.updated_at)),
    ];
    let lasted = lasted(session.duration_micros(now));
    match session.finished_at {
        Some(at) => facts.push(("finished", format!("{}, after {lasted}", when(at)))),
        None => facts.push(("lasts", lasted)),
    }
    let (done, failed) = (counted_here.tasks_completed, counted_here.tasks_failed);
    facts.extend([
        ("tasks", format!("{done} done, {failed} failed")),
        ("decisions", counted_here.decisions_made.to_string()),
        ("checkpoints", counted_here.checkpoints_created.to_string()),
        ("recoveries", counted(counted_here.error_recoveries, "rollback", "rollbacks")),
    ]);
    for (name, value) in &session.configuration {
        facts.push(("configuration", format!("{} = {}", printable(name), printable(&value.to_string()))));
    }
    if let Some(context) = &session.git_context {
        facts.push(("git", printable(&json!(context).to_string())));
    }
    facts
}

/// A length of time as people say it.
fn lasted(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{hours} h {} min", minutes % 60),
    }
}

pub(crate) fn list(context: &Context, args: &ListArgs) -> Result<Reply, Problem> {
    let sessions = context.surroundings.open(None)?.sessions().list(args.status, args.limit)?;
    match sessions.as_slice() {
        [] if args.status.is_some() || args.limit.is_some() => {
            context.out.remark("No session fits what you asked for.");
        }
        [] => context
            .out
            .remark("There are no sessions yet. Make one: safepoint session create \"what is asked for\""),
        sessions => table(&context.out, sessions),
    }
    let list: Value = sessions.iter().map(shape).collect();
    Ok(Reply::done(json!({ "sessions": list })))
}

fn table(out: &Printer, sessions: &[Session]) {
    let now = Surroundings::now();
    let widest = |title: &str, column: &dyn Fn(&Session) -> usize| {
        sessions.iter().map(column).max().unwrap_or(0).max(title.len())
    };
    let id = widest("SESSION", &|session| session.id.to_uuid().len());
    let status = widest("STATUS", &|session| session.status.as_str().len());
    let when = widest("CHANGED", &|session| ago(now, session.updated_at).len());
    let title = format!("{:id$}  {:status$}  {:when$}  ", "SESSION", "STATUS", "CHANGED");
    out.remark(out.colours.dim(format!("{title}REQUEST")));
    let letters = match out.terminal {
        true => width().saturating_sub(title.len()).max(LABEL_LETTERS_MIN),
        false => REQUEST_LETTERS,
    };
    for session in sessions {
        let (name, age) = (out.colours.bold(session.id.to_uuid()), ago(now, session.updated_at));
        let request = shortened(&printable(&session.request), letters);
        out.line(format!("{name}  {:status$}  {age:when$}  {request}", session.status));
    }
}

#[cfg(test)]
mod tests {
    use super::lasted;

    #[test]
    fn lengths_of_time_are_said_with_two_units() {
        let said = [0, 59, 60, 3_599, 3_600, 90_061].map(|seconds| lasted(seconds * 1_000_000));
        assert_eq!(said, ["0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 1 min"]);
    }
}
