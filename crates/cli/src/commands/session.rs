//! `session`: a request, its status, and its counters.

mod change;
mod export;
mod look;

use crate::args::session::{CreateArgs, OneArgs, SessionCommand, TransitionArgs, UpdateArgs};
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use crate::render::terminal::{printable, shortened};
use crate::{commands::Context, render::consent};
use safepoint::model::id::SessionId;
use safepoint::model::session::{Session, SessionStatus};
use safepoint::{CheckpointManager, Filter, NewSession, RoleFilter};
use serde_json::{Value, json};

/// So much of a request is shown where it is not what was asked for.
const REQUEST_LETTERS: usize = 60;

pub(crate) fn run(context: &Context, command: &SessionCommand) -> Result<Reply, Problem> {
    match command {
        SessionCommand::Create(args) => create(context, args),
        SessionCommand::Get(args) => look::get(context, args),
        SessionCommand::List(args) => look::list(context, args),
        SessionCommand::Update(args) => update(context, args),
        SessionCommand::Transition(args) => transition(context, args),
        SessionCommand::Delete(args) => delete(context, args),
        SessionCommand::Export(args) => export::run(context, args),
    }
}

fn create(context: &Context, args: &CreateArgs) -> Result<Reply, Problem> {
    let object = |what, text: &Option<String>| {
        text.as_deref().map(|text| change::object(what, text)).transpose().map(Option::flatten)
    };
    let new = NewSession {
        request: args.request.clone(),
        id: args.session_id.as_deref().map(str::parse::<SessionId>).transpose()?,
        configuration: object("--configuration", &args.configuration)?.unwrap_or_default(),
        git_context: match &args.git_context {
            Some(_) => object("--git-context", &args.git_context)?,
            None => CheckpointManager::git_context(&context.surroundings.directory),
        },
    };
    let session = context.surroundings.open(None)?.sessions().create(new)?;
    let out = &context.out;
    if out.quiet {
        out.line(session.id.to_uuid());
    } else {
        out.line(format!("New session {}, {}", titled(context, &session), session.status));
        let id = session.id.to_uuid();
        out.prose(format!("Checkpoints of it: safepoint create --session-id {id}"));
        out.prose(format!("Or for all that follows: export SAFEPOINT_SESSION_ID={id}"));
    }
    Ok(answer(&session))
}

fn update(context: &Context, args: &UpdateArgs) -> Result<Reply, Problem> {
    let id = args.session.id.parse()?;
    let changes = args.changes.iter().map(|text| change::read(text)).collect::<Result<Vec<_>, _>>()?;
    let session = context.surroundings.open(None)?.sessions().update(id, changes)?;
    context.out.remark(format!("Changed session {}", titled(context, &session)));
    Ok(answer(&session))
}

fn transition(context: &Context, args: &TransitionArgs) -> Result<Reply, Problem> {
    let session =
        context.surroundings.open(None)?.sessions().transition(args.session.id.parse()?, args.status)?;
    let out = &context.out;
    out.remark(format!("Session {} is {} now", titled(context, &session), session.status));
    if let (SessionStatus::Paused, Some(from)) = (session.status, session.paused_from) {
        out.remark(format!("It goes on with: safepoint session transition {} {from}", session.id.to_uuid()));
    }
    Ok(answer(&session))
}

fn delete(context: &Context, args: &OneArgs) -> Result<Reply, Problem> {
    let manager = context.surroundings.open(None)?;
    let session = manager.sessions().get(args.id.parse()?)?;
    let name = titled(context, &session);
    consent::ask(context, &format!("Delete session {name}? Its checkpoints stay. This cannot be undone."))?;
    let session = manager.sessions().delete(session.id)?;
    let filter = Filter {
        session_id: Some(session.id.to_uuid()),
        role: RoleFilter::Any,
        limit: Some(1),
        ..Filter::default()
    };
    let left = !manager.checkpoints().list(&filter)?.is_empty();
    let stay = if left { "; its checkpoints stay" } else { "" };
    context.out.remark(format!("Deleted session {name}{stay}"));
    Ok(Reply::done(json!({ "deleted": shape(&session) })))
}

fn shape(session: &Session) -> Value {
    json::session::session(session, Surroundings::now())
}

fn answer(session: &Session) -> Reply {
    Reply::done(json!({ "session": shape(session) }))
}

/// The id and the beginning of the request, for people.
fn titled(context: &Context, session: &Session) -> String {
    let request = shortened(&printable(&session.request), REQUEST_LETTERS);
    format!("{} \"{request}\"", context.out.colours.bold(session.id.to_uuid()))
}
