//! History: one event for every change, each with the hash of the previous one.
//!
//! `hash` is BLAKE3 over the previous hash, the number, the time, the kind, the subject and the payload as
//! stored. The numbers have no gaps, and the end of the chain is stored separately: so every changed, moved
//! or removed event is detected.

use crate::fields::{Fields, integer, json};
use crate::{Catalog, CatalogError, Transaction, query};
use rusqlite::{Connection, Row, params};
use safepoint_model::Timestamp;
use safepoint_planted::planted;
use serde_json::Value;

/// Hash before the first event.
const BEGINNING: [u8; 32] = [0; 32];

/// Event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number, from 1, without gaps.
    pub seq: u64,
    /// Time.
    pub at: Timestamp,
    /// Kind, such as `checkpoint.created`.
    pub kind: String,
    /// Id of the changed record.
    pub subject: String,
    /// Details.
    pub payload: Value,
    /// Hash of the previous event.
    pub previous: [u8; 32],
    /// Hash of this event.
    pub hash: [u8; 32],
}

/// Result of verifying the whole history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCheck {
    /// Number of intact events, from the first.
    pub whole: u64,
    /// First broken event, if any.
    pub broken: Option<BrokenEvent>,
}

/// Event that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenEvent {
    /// Number.
    pub seq: u64,
    /// Problem.
    pub why: String,
}

impl Catalog {
    /// Returns the events after this number, oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn events(&self, after: u64, limit: u64) -> Result<Vec<Event>, CatalogError> {
        let (after, limit) = (integer("after", after)?, integer("limit", limit)?);
        self.read(|connection| {
            let sql = "SELECT * FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            query::all(connection, "events", sql, [after, limit], read)
        })
    }

    /// Returns the number of the last event; 0 before the first.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn last_event(&self) -> Result<u64, CatalogError> {
        self.read(|connection| head(connection).map(|(seq, _)| seq))
    }

    /// Verifies the whole history.
    ///
    /// # Errors
    /// When the catalog cannot be read. Tampering is a result, not an error.
    pub fn verify_events(&self) -> Result<EventCheck, CatalogError> {
        self.read(verify)
    }
}

impl Transaction<'_> {
    /// Appends an event. Every write of this crate appends its own; this is for other operations.
    ///
    /// # Errors
    /// When the row cannot be written.
    pub fn append_event(
        &self,
        at: Timestamp,
        kind: &str,
        subject: &str,
        payload: &Value,
    ) -> Result<(), CatalogError> {
        let (last, previous) = head(self.connection)?;
        let previous = if planted!("catalog-events-not-chained") { BEGINNING } else { previous };
        let (seq, payload) = (last + 1, json("the payload of an event", payload)?);
        let number = integer("the number of an event", seq)?;
        let hash = chain(&previous, number, at.micros(), [kind, subject, &payload]);
        query::run(
            self.connection,
            format_args!("event {seq}"),
            "INSERT INTO events (seq, at, kind, subject, payload, previous, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![number, at.micros(), kind, subject, payload, previous, hash],
        )?;
        let sql = "UPDATE event_head SET seq = ?1, hash = ?2 WHERE only = 1";
        query::run(self.connection, format_args!("event {seq}"), sql, params![number, hash])?;
        self.last.set(Some((seq, hash)));
        Ok(())
    }
}

/// Returns the number and the hash of the last event.
fn head(connection: &Connection) -> Result<(u64, [u8; 32]), CatalogError> {
    query::first(connection, "the last event", "SELECT seq, hash FROM event_head", (), |row| {
        let fields = Fields::new(row, "event_head", 1);
        Ok((fields.number("seq")?, fields.get("hash")?))
    })?
    .ok_or_else(|| CatalogError::Damaged {
        table: "event_head",
        id: "1".to_owned(),
        why: "the row is missing".to_owned(),
    })
}

fn chain(previous: &[u8; 32], seq: i64, at: i64, texts: [&str; 3]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous);
    hasher.update(&seq.to_le_bytes());
    hasher.update(&at.to_le_bytes());
    for text in texts {
        // With its length: otherwise characters could move from one text to the next undetected.
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().into()
}

fn read(row: &Row<'_>) -> Result<Event, CatalogError> {
    let fields = Fields::new(row, "events", row.get("seq").unwrap_or(0i64));
    Ok(Event {
        seq: fields.number("seq")?,
        at: fields.time("at")?,
        kind: fields.get("kind")?,
        subject: fields.get("subject")?,
        payload: fields.json("payload")?,
        previous: fields.get("previous")?,
        hash: fields.get("hash")?,
    })
}

pub(crate) fn verify(connection: &Connection) -> Result<EventCheck, CatalogError> {
    let failed = |error| CatalogError::read("events", error);
    let mut statement = connection.prepare_cached("SELECT * FROM events ORDER BY seq").map_err(failed)?;
    let mut rows = statement.query(()).map_err(failed)?;
    let (mut whole, mut last) = (0u64, BEGINNING);
    let broken = |seq, why: String| Ok(EventCheck { whole: seq - 1, broken: Some(BrokenEvent { seq, why }) });
    while let Some(row) = rows.next().map_err(failed)? {
        match verify_one(row, whole + 1, &last) {
            Ok(hash) => last = hash,
            Err(_) if planted!("catalog-chain-not-checked") => last = row.get("hash").map_err(failed)?,
            Err(why) => return broken(whole + 1, why),
        }
        whole += 1;
    }
    match head(connection) {
        Ok(end) if end == (whole, last) => Ok(EventCheck { whole, broken: None }),
        Ok((end, _)) if end > whole => broken(whole + 1, format!("the history ends before event {end}")),
        Ok(_) => broken(whole + 1, "the history does not end as it was recorded".to_owned()),
        Err(error) if error.is_damaged() => broken(whole + 1, error.to_string()),
        Err(error) => Err(error),
    }
}

/// Returns the hash of this row if it is unchanged and in its place.
fn verify_one(row: &Row<'_>, seq: u64, last: &[u8; 32]) -> Result<[u8; 32], String> {
    let fields = Fields::new(row, "events", seq);
    let text = |column| fields.get::<String>(column).map_err(|error| error.to_string());
    let hash_of = |column| fields.get::<[u8; 32]>(column).map_err(|error| error.to_string());
    let found = fields.number("seq").map_err(|error| error.to_string())?;
    if found != seq {
        return Err(format!("it is missing: event {found} follows"));
    }
    if &hash_of("previous")? != last {
        return Err("it does not follow the previous event".to_owned());
    }
    let at = fields.get("at").map_err(|error| error.to_string())?;
    let number = fields.get("seq").map_err(|error| error.to_string())?;
    let hash = chain(last, number, at, [&text("kind")?, &text("subject")?, &text("payload")?]);
    if hash_of("hash")? != hash {
        return Err("its content was changed".to_owned());
    }
    Ok(hash)
}
