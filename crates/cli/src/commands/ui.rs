//! `ui`: serves the page of one workspace. The server is in the crate `safepoint-web`; this file runs its calls with the
//! commands of this program.

mod look;
mod open;
mod work;

use crate::args::UiArgs;
use crate::commands::Context;
use crate::context::Surroundings;
use crate::problem::Problem;
use crate::render::output::Reply;
use crate::render::terminal::printable;
use safepoint::model::attempt::Attempt;
use safepoint::model::checkpoint::Checkpoint;
use safepoint::{Access, CheckpointManager, Error, Failure, FailureKind, Workspace};
use safepoint_web::{Blob, Call, Desk, Place, Rights, Server, ServerError, State, Watch};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// First of the ports of pages. They are below those that systems give to connections.
const FIRST_PORT: u16 = 20_000;
/// Number of these ports.
const PORTS: u16 = 12_000;

pub(crate) fn run(context: &Context, args: &UiArgs) -> Result<Reply, Problem> {
    let surroundings = context.surroundings.clone();
    let rights = Rights { read_only: args.read_only, allow_commands: args.allow_commands };
    // A folder without checkpoints has a page, too: it says how to take the first one.
    let folder = printable(&surroundings.directory.display().to_string());
    let server = match &args.socket {
        Some(path) => Server::bind_socket(&surroundings.absolute(path), rights),
        None => match args.port {
            Some(port) => Server::bind(port, rights),
            None => Server::bind(usual_port(&surroundings), rights).or_else(|_| Server::bind(0, rights)),
        },
    };
    let server = server.map_err(|error| unusable(&error))?;
    let url = server.url();
    let socket = args.socket.as_ref().map(|path| surroundings.absolute(path).display().to_string());
    let data = json!({ "url": url, "socket": socket, "read_only": args.read_only });
    let mut lines = vec![format!("Serving {folder} at {url}")];
    lines.extend(socket.as_ref().map(|path| format!("Socket: {}", printable(path))));
    lines.push("The address works once, for 60 seconds. End with Ctrl-C.".to_owned());
    context.out.announce("ui", &data, &lines);
    // The file is deleted with this value.
    let opened = match args.no_open || socket.is_some() {
        true => None,
        false => open::browser(&context.out, &url),
    };
    let served = server.serve(Arc::new(Commands {
        surroundings,
        read_only: args.read_only,
        recovered: Mutex::default(),
    }));
    drop(opened);
    served.map_err(|error| unusable(&error))?;
    Ok(Reply::done(data))
}

/// Port for the folder of the workspace. Browsers keep settings by address, which includes the port.
fn usual_port(surroundings: &Surroundings) -> u16 {
    let mut looking = surroundings.clone();
    looking.access = Access::ReadOnly;
    let known = looking.open(None).ok().and_then(|manager| looking.workspace(&manager).ok());
    let root = known.map_or(looking.directory, |workspace| workspace.root_path().to_path_buf());
    // FNV-1a.
    let hash = root.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_PORT + u16::try_from(hash % u64::from(PORTS)).unwrap_or(0)
}

fn unusable(error: &ServerError) -> Problem {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    Problem::not_served(printable(&error.to_string()), cause)
}

/// The commands of this program, for one workspace.
struct Commands {
    surroundings: Surroundings,
    read_only: bool,
    recovered: Mutex<Recovered>,
}

/// Rollbacks that calls of this server found interrupted.
#[derive(Debug, Default, Clone, Copy)]
struct Recovered {
    undone: usize,
    settled: usize,
}

/// Workspace of a call.
struct Ground<'a> {
    surroundings: Surroundings,
    manager: CheckpointManager,
    workspace: Workspace,
    watch: &'a dyn Watch,
}

impl Commands {
    fn ground<'a>(&self, writes: bool, watch: &'a dyn Watch) -> Result<Ground<'a>, Problem> {
        let mut surroundings = self.surroundings.clone();
        surroundings.caller = Some("ui".to_owned());
        surroundings.access = match (self.read_only, writes) {
            (true, _) => Access::ReadOnly,
            (false, true) => Access::Write,
            (false, false) => Access::Read,
        };
        let manager = surroundings.open(None)?;
        let workspace = surroundings.workspace(&manager)?;
        // Paths of the page are relative to the top.
        surroundings.directory = workspace.root_path().to_path_buf();
        Ok(Ground { surroundings, manager, workspace, watch })
    }

    fn answer(&self, call: &Call, watch: &dyn Watch) -> Result<Value, Problem> {
        if let Call::Create { label } = call {
            if let Ok(ground) = self.ground(true, watch) {
                let recovered = ground.manager.recover(&ground.workspace, watch);
                self.note(&ground);
                recovered?;
            }
            // It registers the workspace if necessary.
            return work::create(&self.surroundings, label.clone());
        }
        let ground = self.ground(call.writes(), watch)?;
        let mut answer = match call.writes() {
            true => ground.work(call),
            false => ground.look(call),
        };
        self.note(&ground);
        if let (Call::Workspace, Ok(answer)) = (call, &mut answer) {
            let Recovered { undone, settled } = *self.recovered();
            answer["recovered"] = json!({ "undone": undone, "settled": settled });
        }
        answer
    }

    fn recovered(&self) -> std::sync::MutexGuard<'_, Recovered> {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the recoveries of a call, for the notice on the page.
    fn note(&self, ground: &Ground<'_>) {
        let recovery = ground.manager.take_recovered();
        let mut recovered = self.recovered();
        recovered.undone += recovery.undone.len();
        recovered.settled += recovery.settled.len();
    }
}

impl Desk for Commands {
    fn perform(&self, call: &Call, watch: &dyn Watch) -> Result<Value, Failure> {
        guarded(|| self.answer(call, watch))
    }

    fn read(&self, place: &Place, bytes_max: u64) -> Result<Option<Blob>, Failure> {
        guarded(|| {
            let ground = self.ground(false, &Still)?;
            ground.read(place, bytes_max)
        })
    }
}

/// Turns a panic into a failure: one request must not end the server.
fn guarded<T>(work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|problem| problem.failure),
        Err(_) => Err(Problem::internal("the call ended unexpectedly".to_owned()).failure),
    }
}

/// Watch of a call without progress.
struct Still;

impl safepoint::Progress for Still {}

impl Watch for Still {
    fn item(&self, _item: Value) {}
}

impl Ground<'_> {
    /// The checkpoint of this id. Those of other workspaces are refused, even if the user may see them.
    fn checkpoint(&self, id: &str) -> Result<Checkpoint, Problem> {
        let found = self.found(id)?;
        match found.workspace_id {
            Some(id) if id != self.workspace.id => Err(Error::OtherWorkspace { checkpoint: found.id }.into()),
            _ => Ok(found),
        }
    }

    /// The same to look at, with the attempt if it is a checkpoint of one.
    fn seen(&self, id: &str) -> Result<(Checkpoint, Option<Attempt>), Problem> {
        let found = self.found(id)?;
        let Some(place) = found.workspace_id.filter(|place| *place != self.workspace.id) else {
            return Ok((found, None));
        };
        let attempt = self.manager.attempts().of_place(place)?;
        match attempt.filter(|attempt| attempt.workspace_id == self.workspace.id) {
            Some(attempt) => Ok((found, Some(attempt))),
            None => Err(Error::OtherWorkspace { checkpoint: found.id }.into()),
        }
    }

    fn found(&self, id: &str) -> Result<Checkpoint, Problem> {
        let id = id.parse().map_err(|_| Error::NoCheckpoint { reference: printable(id) })?;
        Ok(self.manager.checkpoints().get(id)?)
    }

    fn state(&self, state: &State) -> Result<Option<Checkpoint>, Problem> {
        match state {
            State::Checkpoint(id) => Ok(Some(self.seen(id)?.0)),
            State::Present | State::Parent => Ok(None),
        }
    }

    /// Runs a command of the command line, without a terminal.
    fn command(&self, command: &crate::args::Command) -> Result<Value, Problem> {
        dispatched(&self.surroundings, command)
    }
}

/// Runs a command of the command line, without a terminal.
fn dispatched(surroundings: &Surroundings, command: &crate::args::Command) -> Result<Value, Problem> {
    let global = crate::args::Global { json: true, quiet: true, ..crate::args::Global::default() };
    let context = Context {
        surroundings: surroundings.clone(),
        out: crate::render::output::Printer::new(&global, true, crate::render::output::Stage::Lent),
        progress: crate::render::terminal::Bars::new(false, Arc::default()),
        yes: false,
    };
    let reply = crate::commands::dispatch(&context, command)?;
    match reply.failure {
        Some(failure) if failure.kind != FailureKind::Failed => {
            Err(Problem { failure, nothing_changed: true, attempt: None, topic: None })
        }
        _ => Ok(reply.data),
    }
}
