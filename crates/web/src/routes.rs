//! Routes: each request is checked, becomes a call of the desk, and its result an answer.

use crate::body::{Answered, full, json, object};
use crate::desk::{BlobKind, Bound, Call, Desk, Find, Letters, Listing, Own, Place, PreviewOf, State, Wish};
use crate::diff::{self, COMPARED_BYTES_MAX, Choices, Side};
use crate::door::{Door, Rights, Visit, check_source, secret};
use crate::jobs::{Job, Jobs, Unwatched};
use crate::previews::{LIFE, Previews};
use crate::problem::Problem;
use crate::query::{Fields, Query, segments};
use crate::{page, stream};
use hyper::body::Incoming;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, StatusCode};
use safepoint::{Failure, FailureKind};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

/// Maximum size of a raw file.
const RAW_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of paths or ids in a body.
const LIST_MAX: usize = 10_000;
/// Maximum length of a text to search for.
const TEXT_CHARS_MAX: usize = 1000;

/// State of a server that all requests share.
pub(crate) struct Shared {
    pub(crate) desk: Arc<dyn Desk>,
    pub(crate) door: Door,
    pub(crate) rights: Rights,
    pub(crate) previews: Previews,
    pub(crate) jobs: Jobs,
    pub(crate) last_event: watch::Sender<u64>,
}

/// Request without its body.
struct Asked<'a> {
    method: &'a Method,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    path: Vec<&'a str>,
}

impl Shared {
    /// Answers a request.
    pub(crate) async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Answered {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let result = match path.strip_prefix("/api/") {
            Some(rest) => self.api(&parts, rest, body).await,
            None => check_source(&parts.headers, Visit::Page).and_then(|()| match parts.method {
                Method::GET => page::file(path),
                _ => Err(no_method()),
            }),
        };
        result.unwrap_or_else(|problem| problem.answer())
    }

    async fn api(
        self: &Arc<Self>,
        parts: &hyper::http::request::Parts,
        rest: &str,
        body: Incoming,
    ) -> Result<Answered, Problem> {
        check_source(&parts.headers, Visit::Api)?;
        if rest == "v1/session" && parts.method == Method::POST {
            return self.trade(body).await;
        }
        self.door.admit(&parts.headers)?;
        let path = segments(rest)?;
        let [version, path @ ..] = path.as_slice() else { return Err(Problem::no_route()) };
        if version != "v1" {
            return Err(Problem::no_route());
        }
        let asked = Asked {
            method: &parts.method,
            query: parts.uri.query(),
            headers: &parts.headers,
            path: path.iter().map(String::as_str).collect(),
        };
        match *asked.method {
            Method::GET => self.get(&asked).await,
            Method::DELETE => self.delete(&asked),
            Method::POST => {
                let is_bare = matches!(asked.path.as_slice(), ["checkpoints", _, "pin" | "unpin"]);
                let body = if is_bare { Value::Object(serde_json::Map::new()) } else { object(body).await? };
                self.post(&asked, body).await
            }
            _ => Err(no_method()),
        }
    }

    /// Trades the token for a key.
    async fn trade(self: &Arc<Self>, body: Incoming) -> Result<Answered, Problem> {
        let fields = Fields::read(object(body).await?, &["token"])?;
        let key = self.door.trade(&fields.needed("token")?)?;
        let workspace = self.workspace().await.unwrap_or(Value::Null);
        Ok(json(StatusCode::CREATED, &json!({ "key": key, "workspace": workspace })))
    }

    async fn workspace(self: &Arc<Self>) -> Result<Value, Problem> {
        let mut value = self.call(Call::Workspace).await?;
        value["read_only"] = json!(self.rights.read_only);
        value["allow_commands"] = json!(self.rights.allow_commands);
        Ok(value)
    }

    /// Runs a call on a blocking thread.
    async fn call(self: &Arc<Self>, call: Call) -> Result<Value, Problem> {
        self.may(&call)?;
        let desk = Arc::clone(&self.desk);
        blocking(move || desk.perform(&call, &Unwatched)).await
    }

    fn may(&self, call: &Call) -> Result<(), Problem> {
        if self.rights.read_only && call.writes() {
            let hint = "Run safepoint ui without --read-only.";
            return Err(Problem::own("read_only", "the server is read-only, and this writes", hint));
        }
        if matches!(call, Call::FindGood(Find { command: Some(_), .. })) && !self.rights.allow_commands {
            let hint = "Run safepoint ui with --allow-commands, or set a test command in config.toml.";
            return Err(Problem::own("no_commands", "the server runs no commands of the page", hint));
        }
        Ok(())
    }

    /// Reads entries at places on a blocking thread.
    async fn read(
        self: &Arc<Self>,
        places: Vec<Place>,
        bytes_max: u64,
    ) -> Result<Vec<Option<crate::Blob>>, Problem> {
        if self.rights.read_only && places.iter().any(|place| place.state == State::Present) {
            let call = Call::Present;
            self.may(&call)?;
        }
        let desk = Arc::clone(&self.desk);
        blocking(move || places.iter().map(|place| desk.read(place, bytes_max)).collect()).await
    }

    async fn get(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Answered, Problem> {
        match asked.path.as_slice() {
            ["events"] => return self.events(asked).await,
            ["jobs", id] => {
                Query::read(asked.query, &[])?;
                return Ok(json(StatusCode::OK, &self.jobs.get(id)?.json()));
            }
            ["jobs", id, "events"] => {
                Query::read(asked.query, &[])?;
                let after = last_event_id(asked.headers)?.unwrap_or(0);
                return Ok(stream::job(self.jobs.get(id)?, usize::try_from(after).unwrap_or(usize::MAX)));
            }
            ["raw"] => return self.raw(asked).await,
            ["status", "present"] => {
                Query::read(asked.query, &[])?;
                return Ok(json(StatusCode::OK, &self.call(Call::Present).await?));
            }
            ["plans", plan, "output"] => {
                let query = Query::read(asked.query, &["step", "after"])?;
                let (step, after) = (query.needed("step")?, query.number("after")?.unwrap_or(0));
                let call = Call::Output { plan: (*plan).to_owned(), step, after };
                return Ok(json(StatusCode::OK, &self.call(call).await?));
            }
            _ => {}
        }
        if !is_by_events(asked) {
            return Ok(json(StatusCode::OK, &self.value(asked).await?));
        }
        // The mark is read first: the answer may be newer than its mark, never older.
        let mark = self.call(Call::LastEvent).await?;
        let tag = HeaderValue::from_str(&format!("\"{mark}\"")).map_err(|_| Problem::no_route())?;
        if asked.headers.get(IF_NONE_MATCH) == Some(&tag) {
            return Ok(full(StatusCode::NOT_MODIFIED, Vec::new()));
        }
        let mut answer = json(StatusCode::OK, &self.value(asked).await?);
        answer.headers_mut().insert(ETAG, tag);
        Ok(answer)
    }

    async fn value(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Value, Problem> {
        let none = || Query::read(asked.query, &[]);
        let call = match asked.path.as_slice() {
            ["workspace"] => {
                none()?;
                return self.workspace().await;
            }
            ["checkpoints"] => Call::Checkpoints(listing(asked.query)?),
            ["checkpoints", id] => none().map(|_| Call::Checkpoint((*id).to_owned()))?,
            ["rollbacks"] => {
                Call::Rollbacks { limit: Query::read(asked.query, &["limit"])?.limit(200, 1000)? }
            }
            ["strip"] => {
                let buckets = Query::read(asked.query, &["buckets"])?.number("buckets")?.unwrap_or(60);
                if !(1..=500).contains(&buckets) {
                    return Err(Problem::usage("buckets is not from 1 to 500"));
                }
                Call::Strip { buckets }
            }
            ["tree"] => {
                let query = Query::read(asked.query, &["checkpoint", "path", "skip", "limit"])?;
                let state = State::Checkpoint(query.needed("checkpoint")?);
                let place = Place { state, path: query.bytes("path").unwrap_or_default() };
                let skip = query.number("skip")?.unwrap_or(0);
                Call::Tree { place, skip, limit: query.limit(1000, 10_000)? }
            }
            ["file"] => return self.file(asked).await,
            ["diff"] => return self.diff(asked).await,
            ["diff", "file"] => return self.diff_file(asked).await,
            ["history"] => {
                let query = Query::read(asked.query, &["path", "before", "limit"])?;
                let (path, before) = (query.needed_bytes("path")?, query.number("before")?);
                Call::History { path, before, limit: query.limit(100, 1000)? }
            }
            ["line"] => {
                let query = Query::read(asked.query, &["path", "text"])?;
                Call::Line { path: query.needed_bytes("path")?, text: searched(query.needed("text")?)? }
            }
            ["plans"] => none().map(|_| Call::Plans)?,
            ["plans", id] => none().map(|_| Call::Plan((*id).to_owned()))?,
            ["sessions"] => none().map(|_| Call::Sessions)?,
            ["turns"] => {
                let query = Query::read(asked.query, &["before", "limit"])?;
                Call::Turns { before: query.number("before")?, limit: query.limit(200, 1000)? }
            }
            ["agents"] => none().map(|_| Call::Agents)?,
            ["attempts"] => none().map(|_| Call::Attempts)?,
            ["usage"] => Call::Usage { limit: Query::read(asked.query, &["limit"])?.limit(1000, 10_000)? },
            _ => return Err(Problem::no_route()),
        };
        self.call(call).await
    }

    async fn events(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Answered, Problem> {
        let query = Query::read(asked.query, &["after"])?;
        let last = self.last_event.subscribe();
        let after =
            match last_event_id(asked.headers)?.map_or_else(|| query.number("after"), |id| Ok(Some(id)))? {
                Some(after) => after,
                None => self.call(Call::LastEvent).await?.as_u64().unwrap_or(0),
            };
        Ok(stream::events(Arc::clone(&self.desk), last, after))
    }

    async fn file(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Value, Problem> {
        let query = Query::read(asked.query, &["checkpoint", "path", "line", "limit"])?;
        let place = place(&query)?;
        let from = usize::try_from(query.number("line")?.unwrap_or(0)).unwrap_or(usize::MAX);
        let limit = usize::try_from(query.limit(3000, 10_000)?).unwrap_or(usize::MAX);
        let blob = self.read(vec![place.clone()], COMPARED_BYTES_MAX).await?.pop().flatten();
        let blob = blob.ok_or_else(|| no_path(&place))?;
        let path = place.path.clone();
        let mut shown = blocking(move || Ok(diff::file(&path, &blob, from, limit))).await?;
        shown["path"] = path_json(&place.path);
        shown["checkpoint"] = match &place.state {
            State::Checkpoint(id) => json!(id),
            _ => Value::Null,
        };
        Ok(shown)
    }

    async fn raw(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Answered, Problem> {
        let place = place(&Query::read(asked.query, &["checkpoint", "path"])?)?;
        let blob = self.read(vec![place.clone()], RAW_BYTES_MAX).await?.pop().flatten();
        let blob = blob.filter(|blob| blob.kind == BlobKind::File).ok_or_else(|| no_path(&place))?;
        let Some(bytes) = blob.bytes else {
            let hint = "safepoint cat writes files of any size.";
            return Err(Problem::own("too_large", "the file is larger than 64 MiB", hint));
        };
        let media = diff::picture(&bytes);
        let mut answer = full(StatusCode::OK, bytes);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media.unwrap_or("application/octet-stream")));
        if media.is_none() {
            headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
        }
        Ok(answer)
    }

    async fn diff(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Value, Problem> {
        let query = Query::read(asked.query, &["from", "to", "skip", "limit"])?;
        let (from, to) = sides(&query)?;
        let (skip, limit) = (query.number("skip")?.unwrap_or(0), query.limit(1000, 10_000)?);
        self.call(Call::Diff { from, to, skip, limit }).await
    }

    async fn diff_file(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Value, Problem> {
        let known = ["from", "to", "path", "old_path", "context", "space", "hunk", "limit"];
        let query = Query::read(asked.query, &known)?;
        let (mut from, to) = sides(&query)?;
        if from == State::Parent {
            from = self.parent_of(&to).await?;
        }
        let path = query.needed_bytes("path")?;
        let old_path = query.bytes("old_path").unwrap_or_else(|| path.clone());
        let number = |name, otherwise| -> Result<usize, Problem> {
            Ok(usize::try_from(query.number(name)?.unwrap_or(otherwise)).unwrap_or(usize::MAX))
        };
        let choices = Choices {
            context: number("context", 3)?.min(1 << 24),
            ignores_space: query.word("space", &[("keep", false), ("ignore", true)], false)?,
            hunk: number("hunk", 0)?,
            limit: usize::try_from(query.limit(3000, 10_000)?).unwrap_or(usize::MAX),
        };
        let new = Place { state: to, path: path.clone() };
        let mut places = vec![new.clone()];
        // A checkpoint without a parent is compared with nothing.
        places.extend((from != State::Parent).then(|| Place { state: from, path: old_path.clone() }));
        let mut blobs = self.read(places, COMPARED_BYTES_MAX).await?.into_iter();
        let (new_blob, old_blob) = (blobs.next().flatten(), blobs.next().flatten());
        if new_blob.is_none() && old_blob.is_none() {
            return Err(no_path(&new));
        }
        let shown_path = path_json(&path);
        let shown_old = (old_path != path).then(|| path_json(&old_path));
        let mut shown = blocking(move || {
            let old = Side { path: &old_path, blob: old_blob.as_ref() };
            let new = Side { path: &path, blob: new_blob.as_ref() };
            Ok(diff::compare(old, new, choices))
        })
        .await?;
        shown["path"] = shown_path;
        shown["old_path"] = json!(shown_old);
        Ok(shown)
    }

    /// The parent of a checkpoint; [`State::Parent`] itself if there is none.
    async fn parent_of(self: &Arc<Self>, state: &State) -> Result<State, Problem> {
        let State::Checkpoint(id) = state else {
            return Err(Problem::usage("only a checkpoint has a parent"));
        };
        let value = self.call(Call::Checkpoint(id.clone())).await?;
        let parent = value["row"]["checkpoint"]["parent"].as_str();
        Ok(parent.map_or(State::Parent, |parent| State::Checkpoint(parent.to_owned())))
    }

    fn delete(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Answered, Problem> {
        match asked.path.as_slice() {
            ["jobs", id] => {
                Query::read(asked.query, &[])?;
                let job = self.jobs.get(id)?;
                job.cancel();
                Ok(json(StatusCode::OK, &job.json()))
            }
            _ => Err(Problem::no_route()),
        }
    }

    async fn post(self: &Arc<Self>, asked: &Asked<'_>, body: Value) -> Result<Answered, Problem> {
        Query::read(asked.query, &[])?;
        let made = |value: &Value| json(StatusCode::CREATED, value);
        let done = |value: &Value| json(StatusCode::OK, value);
        match asked.path.as_slice() {
            ["checkpoints"] => {
                let label = Fields::read(body, &["label"])?.text("label")?;
                self.call(Call::Create { label }).await.map(|value| made(&value))
            }
            ["checkpoints", id, "pin"] => {
                self.call(Call::Pin((*id).to_owned())).await.map(|value| done(&value))
            }
            ["checkpoints", id, "unpin"] => {
                self.call(Call::Unpin((*id).to_owned())).await.map(|value| done(&value))
            }
            ["deletions"] => {
                let fields = Fields::read(body, &["checkpoints", "dry_run"])?;
                let (ids, dry_run) = (fields.texts("checkpoints", LIST_MAX)?, fields.flag("dry_run")?);
                self.call(Call::Delete { ids, dry_run }).await.map(|value| done(&value))
            }
            ["previews"] => self.preview(body).await,
            ["rollbacks"] => {
                let fits = |of| matches!(of, PreviewOf::Rollback | PreviewOf::Turn(_));
                self.confirm(body, fits).await
            }
            ["redo"] => self.confirm(body, |of| of == PreviewOf::Redo).await,
            ["undo"] => self.undo(body).await,
            ["plans", plan, "rollback"] => {
                let plan = (*plan).to_owned();
                self.confirm_bound(body, move |bound| {
                    bound.wish.of == PreviewOf::Plan && bound.wish.plan.as_ref() == Some(&plan)
                })
                .await
            }
            ["attempts", name, "keep"] => {
                let name = (*name).to_owned();
                self.confirm_bound(body, move |bound| {
                    bound.wish.of == PreviewOf::Keep && bound.wish.attempt.as_ref() == Some(&name)
                })
                .await
            }
            ["attempts", name, "drop"] => {
                Fields::read(body, &[])?;
                self.call(Call::DropAttempt((*name).to_owned())).await.map(|value| done(&value))
            }
            ["plans", plan, "correct"] => self.correct((*plan).to_owned(), body).await,
            ["plans", plan, "resume"] => {
                let interrupted = Fields::read(body, &["interrupted"])?.text("interrupted")?;
                let known = [None, Some("rerun"), Some("done"), Some("fail")];
                if !known.contains(&interrupted.as_deref()) {
                    return Err(Problem::usage("interrupted is no known word"));
                }
                self.begin("resume", Call::Resume { plan: (*plan).to_owned(), interrupted })
            }
            ["searches"] => self.begin("search", search(body)?),
            ["find-good"] => self.begin("find_good", find_good(body)?),
            _ => Err(Problem::no_route()),
        }
    }

    /// Begins a job.
    fn begin(self: &Arc<Self>, kind: &'static str, call: Call) -> Result<Answered, Problem> {
        self.may(&call)?;
        let id = secret().map_err(|_| Problem::usage("no random number can be had"))?;
        let job = self.jobs.begin(id, kind)?;
        let (desk, worker) = (Arc::clone(&self.desk), Arc::clone(&job));
        tokio::spawn(async move { drop(work(desk, call, worker).await) });
        Ok(json(StatusCode::ACCEPTED, &job.json()))
    }

    async fn preview(self: &Arc<Self>, body: Value) -> Result<Answered, Problem> {
        let wish = wish(body)?;
        let mut value = self.call(Call::Preview(wish.clone())).await?;
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let bound = Bound { wish, to: text(&value["goes_to"]), present: text(&value["present"]) };
        value["preview"] = json!(self.previews.keep(bound)?);
        value["expires_in"] = json!(LIFE.as_secs());
        if let Some(fields) = value.as_object_mut() {
            fields.remove("goes_to");
        }
        Ok(json(StatusCode::CREATED, &value))
    }

    async fn undo(self: &Arc<Self>, body: Value) -> Result<Answered, Problem> {
        if body.get("rollback").is_none() {
            return self.confirm(body, |of| of == PreviewOf::Undo).await;
        }
        let id = Fields::read(body, &["rollback"])?.needed("rollback")?;
        let value = self.call(Call::UndoOf(id)).await?;
        Ok(json(StatusCode::OK, &value))
    }

    /// Corrects a plan: in place, or as a preview showed it.
    async fn correct(self: &Arc<Self>, plan: String, body: Value) -> Result<Answered, Problem> {
        let fields = Fields::read(body, &["mode", "guidance", "preview"])?;
        match fields.needed("mode")?.as_str() {
            "in_place" if fields.text("preview")?.is_none() => {
                let call = Call::CorrectInPlace { plan, guidance: fields.text("guidance")? };
                self.call(call).await.map(|value| json(StatusCode::OK, &value))
            }
            "revert" if fields.text("guidance")?.is_none() => {
                let preview = json!({ "preview": fields.needed("preview")? });
                self.confirm_bound(preview, move |bound| {
                    bound.wish.of == PreviewOf::Correct && bound.wish.plan.as_ref() == Some(&plan)
                })
                .await
            }
            "in_place" | "revert" => Err(Problem::usage("preview is for revert, guidance for in_place")),
            _ => Err(Problem::usage("mode is no known word")),
        }
    }

    async fn confirm(
        self: &Arc<Self>,
        body: Value,
        fits: impl Fn(PreviewOf) -> bool,
    ) -> Result<Answered, Problem> {
        self.confirm_bound(body, move |bound| fits(bound.wish.of)).await
    }

    /// Does what a preview showed. Its id is the id of a job, too.
    async fn confirm_bound(
        self: &Arc<Self>,
        body: Value,
        fits: impl Fn(&Bound) -> bool,
    ) -> Result<Answered, Problem> {
        let id = Fields::read(body, &["preview"])?.needed("preview")?;
        let bound = self.previews.take(&id, fits)?;
        let call = Call::Confirm(bound);
        self.may(&call)?;
        let job = self.jobs.begin(id, "rollback")?;
        // A client that goes away does not stop it half way: the task goes on.
        let task = tokio::spawn(work(Arc::clone(&self.desk), call, job));
        let value = task.await.map_err(|_| internal())??;
        Ok(json(StatusCode::OK, &value))
    }
}

/// Returns true if every change of the answer is an event. Turns, times and the current state are none.
fn is_by_events(asked: &Asked<'_>) -> bool {
    let known = ["rollbacks", "strip", "tree", "file", "diff", "history", "line", "agents"];
    let is_known = asked.path.first().is_some_and(|first| known.contains(first));
    is_known && !asked.query.is_some_and(|query| query.contains("present"))
}

/// Runs a call to its end, as a job.
async fn work(desk: Arc<dyn Desk>, call: Call, job: Arc<Job>) -> Result<Value, Problem> {
    let worker = Arc::clone(&job);
    let done = blocking(move || desk.perform(&call, &*worker)).await;
    job.end(done.as_ref().map(Value::clone));
    done
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Problem> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| internal())??)
}

fn internal() -> Problem {
    let hints = vec!["The next command finishes or undoes what was begun.".to_owned()];
    let (code, kind, causes) = ("internal", FailureKind::Internal, Vec::new());
    Failure { code, kind, message: "the call ended unexpectedly".to_owned(), causes, hints }.into()
}

fn no_method() -> Problem {
    Problem::own("no_method", "this address does not take that method", "The API begins with /api/v1.")
}

fn no_path(place: &Place) -> Problem {
    let hints = vec!["The folder in that state lists what is there.".to_owned()];
    let message = format!("{} is not in that state", String::from_utf8_lossy(&place.path));
    Failure { code: "no_path", kind: FailureKind::NotFound, message, causes: Vec::new(), hints }.into()
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let number = given.to_str().ok().and_then(|text| text.parse::<u64>().ok());
    let number = number.filter(|number| i64::try_from(*number).is_ok());
    number.map(Some).ok_or_else(|| Problem::usage("Last-Event-ID is not a number"))
}

/// Path as JSON: text, or bytes in base64.
pub(crate) fn path_json(path: &[u8]) -> Value {
    use base64::Engine;
    match std::str::from_utf8(path) {
        Ok(text) => json!(text),
        Err(_) => json!({ "bytes": base64::engine::general_purpose::STANDARD.encode(path) }),
    }
}

fn state(text: String) -> State {
    match text.as_str() {
        "present" => State::Present,
        "parent" => State::Parent,
        _ => State::Checkpoint(text),
    }
}

fn place(query: &Query) -> Result<Place, Problem> {
    let state = state(query.needed("checkpoint")?);
    match state {
        State::Parent => Err(Problem::usage("a file is of a checkpoint or of the current state")),
        state => Ok(Place { state, path: query.needed_bytes("path")? }),
    }
}

fn sides(query: &Query) -> Result<(State, State), Problem> {
    let (from, to) = (state(query.needed("from")?), state(query.needed("to")?));
    match (from, to) {
        (State::Present, _) | (_, State::Parent) => {
            Err(Problem::usage("from is a checkpoint or its parent; to a checkpoint or the current state"))
        }
        sides => Ok(sides),
    }
}

fn listing(query: Option<&str>) -> Result<Listing, Problem> {
    let known = ["before", "skip", "limit", "session", "agent", "plan", "from", "role"];
    let query = Query::read(query, &known)?;
    Ok(Listing {
        before: query.number("before")?,
        from: query.number("from")?,
        skip: query.number("skip")?.unwrap_or(0),
        limit: query.limit(200, 1000)?,
        session: query.text("session")?,
        agent: query.text("agent")?,
        plan: query.text("plan")?,
        own: query.word("role", &[("any", Own::Listed), ("asked", Own::LeftOut)], Own::Listed)?,
    })
}

fn wish(body: Value) -> Result<Wish, Problem> {
    let known = [
        "verb",
        "to",
        "turn",
        "plan",
        "attempt",
        "paths",
        "leave",
        "parts",
        "guidance",
        "later",
        "failed_undo",
    ];
    let fields = Fields::read(body, &known)?;
    let (to, plan, turn) = (fields.text("to")?, fields.text("plan")?, fields.number("turn")?);
    let attempt = fields.text("attempt")?;
    let of = match fields.needed("verb")?.as_str() {
        "rollback" if to.is_some() => PreviewOf::Rollback,
        "undo" => PreviewOf::Undo,
        "redo" => PreviewOf::Redo,
        "turn" => PreviewOf::Turn(turn.ok_or_else(|| Problem::usage("turn is missing"))?),
        "plan" if plan.is_some() => PreviewOf::Plan,
        "correct" if plan.is_some() => PreviewOf::Correct,
        "keep" if attempt.is_some() => PreviewOf::Keep,
        "rollback" => return Err(Problem::usage("to is missing")),
        "plan" | "correct" => return Err(Problem::usage("plan is missing")),
        "keep" => return Err(Problem::usage("attempt is missing")),
        _ => return Err(Problem::usage("verb is no known word")),
    };
    let wish = Wish {
        of,
        to,
        plan,
        attempt,
        paths: fields.paths("paths", LIST_MAX)?,
        leave: fields.paths("leave", LIST_MAX)?,
        parts: fields.texts("parts", 16)?,
        guidance: fields.text("guidance")?,
        replaces_later: fields.word("later", &[("keep", false), ("replace", true)], false)?,
        skips_failed_undo: fields.word("failed_undo", &[("stop", false), ("skip", true)], false)?,
    };
    let chooses = !(wish.paths.is_empty() && wish.parts.is_empty());
    let can_leave = matches!(of, PreviewOf::Rollback | PreviewOf::Turn(_));
    match () {
        () if chooses && of != PreviewOf::Rollback => {
            Err(Problem::usage("paths and parts are for rollbacks to a checkpoint"))
        }
        () if !wish.leave.is_empty() && !can_leave => {
            Err(Problem::usage("leave is for rollbacks to a checkpoint and for turns"))
        }
        () if wish.guidance.is_some() && of != PreviewOf::Correct => {
            Err(Problem::usage("guidance is for corrections"))
        }
        () => Ok(wish),
    }
}

fn searched(text: String) -> Result<String, Problem> {
    match text.is_empty() || text.chars().count() > TEXT_CHARS_MAX || text.contains('\n') {
        true => Err(Problem::usage("text is not one line of 1 to 1000 characters")),
        false => Ok(text),
    }
}

fn search(body: Value) -> Result<Call, Problem> {
    let fields = Fields::read(body, &["text", "path", "case", "limit"])?;
    let limit = fields.number("limit")?.unwrap_or(1000);
    if !(1..=10_000).contains(&limit) {
        return Err(Problem::usage("limit is not from 1 to 10000"));
    }
    Ok(Call::Search {
        text: searched(fields.needed("text")?)?,
        path: fields.path("path")?.unwrap_or_default(),
        letters: fields.word(
            "case",
            &[("keep", Letters::Exact), ("ignore", Letters::AnyCase)],
            Letters::Exact,
        )?,
        limit,
    })
}

fn find_good(body: Value) -> Result<Call, Problem> {
    let fields = Fields::read(body, &["command", "search", "from"])?;
    let bisects = fields.word("search", &[("stepwise", false), ("bisect", true)], true)?;
    Ok(Call::FindGood(Find { command: fields.text("command")?, bisects, from: fields.text("from")? }))
}
