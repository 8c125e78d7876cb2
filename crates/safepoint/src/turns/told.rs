//! Notes about rollbacks for the sessions of agents, and the records of those sessions.

use crate::Error;
use crate::handles::Turns;
use safepoint_catalog::Workspace;
use safepoint_model::RollbackId;
use safepoint_model::id::SessionId;
use safepoint_model::rollback::Rollback;
use safepoint_model::session::{Session, SessionChange, SessionStatus};
use serde_json::{Map, Value};

/// Facts about a session of an agent.
#[derive(Debug, Clone, Default)]
pub struct SeenSession {
    /// Id, in UUID form.
    pub id: String,
    /// Name of the agent.
    pub agent: String,
    /// Prompt, if one was seen.
    pub request: Option<String>,
    /// Facts by name, such as the model. An absent fact keeps its recorded value.
    pub facts: Vec<(&'static str, Option<Value>)>,
}

/// Moment of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionMoment {
    /// It starts, or is resumed.
    Starts,
    /// A turn begins.
    Works,
    /// It ends, and can be resumed.
    Ends,
}

impl Turns<'_> {
    /// Returns the rollbacks of the workspace that a session was not told about yet, oldest first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn untold(&self, workspace: &Workspace, session: &str) -> Result<Vec<Rollback>, Error> {
        let ids = self.manager.catalog.hook_notes(workspace.id, session)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.manager.rollbacks(workspace)?;
        Ok(all.into_iter().filter(|rollback| ids.contains(&rollback.id)).collect())
    }

    /// Records that a session was told about rollbacks.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn told(&self, session: &str, rollbacks: &[RollbackId]) -> Result<(), Error> {
        self.manager
            .catalog
            .write_unflushed(|transaction| Ok(transaction.delete_hook_notes(session, rollbacks)?))
    }

    /// Returns the session whose call with this id was covered within the last day.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn session_of_call(&self, id: &str) -> Result<Option<String>, Error> {
        Ok(self.manager.catalog.session_of_hook_event(&super::course::covered_of_any(id))?)
    }

    /// Returns true the first time that this fact is reported for a session.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn is_news(&self, session: &str, fact: &str) -> Result<bool, Error> {
        let (at, key) = (self.manager.environment.now(), format!("{session} news {fact}"));
        let forget = super::before(at, super::RECENT);
        self.manager
            .catalog
            .write_unflushed(|transaction| Ok(transaction.is_new_hook_event(&key, at, forget)?))
    }

    /// Puts a session of an agent on record, and its status: implementing while turns run, paused once it ended. A session that a
    /// person completed stays so. Nothing is written if nothing is new.
    ///
    /// # Errors
    /// When the catalog fails.
    pub fn record_session(&self, seen: &SeenSession, moment: SessionMoment) -> Result<(), Error> {
        let Ok(id) = seen.id.parse::<SessionId>() else { return Ok(()) };
        let at = self.manager.environment.now();
        let known = self.manager.catalog.session(id)?;
        if known.as_ref().is_none_or(|session| session.status.is_over()) && moment == SessionMoment::Ends {
            return Ok(());
        }
        let unnamed = format!("session of {}", seen.agent);
        let mut session = known.clone().unwrap_or_else(|| Session::new(id, unnamed.clone(), at));
        let facts = seen.facts.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
        let mut configuration = session.configuration.clone();
        configuration.extend(facts);
        let mut what = Vec::new();
        if configuration != session.configuration {
            what.push("configuration");
            session.change(SessionChange::Configuration(configuration), at)?;
        }
        let request = seen.request.as_ref().filter(|text| !text.trim().is_empty());
        if let Some(request) = request.filter(|_| session.request == unnamed) {
            what.push("request");
            session.change(SessionChange::Request(request.clone()), at)?;
        }
        let way = way(&session, moment);
        if known.is_some() && what.is_empty() && way.is_empty() {
            return Ok(());
        }
        self.manager.catalog.write(|transaction| {
            match known {
                None => transaction.insert_session(&session)?,
                Some(_) if what.is_empty() => {}
                Some(_) => transaction.update_session(&session, &what.join(", "))?,
            }
            for to in way {
                let from = session.status;
                session.go(to, at)?;
                transaction.transition_session(&session, from)?;
            }
            Ok(())
        })
    }

    /// Returns what is known of a session, by name; nothing if it is not on record.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn known_of(&self, session: &str) -> Result<Option<Map<String, Value>>, Error> {
        let Ok(id) = session.parse::<SessionId>() else { return Ok(None) };
        Ok(self.manager.catalog.session(id)?.map(|session| session.configuration))
    }
}

/// Statuses that a session goes through.
fn way(session: &Session, moment: SessionMoment) -> Vec<SessionStatus> {
    use SessionStatus::{GeneratingTasks, Implementing, Initializing, Paused, Planning};
    let mut way = Vec::new();
    let mut at = session.status;
    if moment == SessionMoment::Ends {
        return if at == Paused { way } else { vec![Paused] };
    }
    if at == Paused
        && let Some(from) = session.paused_from
    {
        way.push(from);
        at = from;
    }
    let course = [Initializing, Planning, GeneratingTasks, Implementing];
    if moment == SessionMoment::Works
        && let Some(done) = course.iter().position(|status| *status == at)
    {
        way.extend(&course[done + 1..]);
    }
    way
}
