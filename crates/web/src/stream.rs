//! Server-sent events: the history as it grows, and jobs as they go.

use crate::body::{Answered, Pieces, streamed};
use crate::desk::{Call, Desk};
use crate::jobs::{Job, Unwatched};
use hyper::body::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Interval at which new events are looked for.
const LOOK: Duration = Duration::from_millis(400);
/// Interval of comments, which keep a connection open.
const COMMENT: Duration = Duration::from_secs(15);
/// Events and results sent at once.
const BATCH: u64 = 200;
/// Interval between two reports of progress.
const REPORT: Duration = Duration::from_millis(250);

/// One event. JSON has no line ends of its own.
fn event(id: Option<u64>, name: &str, data: &Value) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    // A name comes from the catalog; a line end would begin another field.
    let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    format!("{id}event: {name}\ndata: {data}\n\n").into()
}

/// Number of the last event, for all listeners; looked up while there is one.
pub(crate) fn follow(desk: Arc<dyn Desk>) -> watch::Sender<u64> {
    let last = watch::Sender::new(0);
    let sender = last.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            if sender.receiver_count() == 0 {
                continue;
            }
            let desk = Arc::clone(&desk);
            let looked =
                tokio::task::spawn_blocking(move || desk.perform(&Call::LastEvent, &Unwatched)).await;
            if let Ok(Ok(value)) = looked {
                let now = value.as_u64().unwrap_or(0);
                sender.send_if_modified(|last| std::mem::replace(last, now) != now);
            }
        }
    });
    last
}

/// Streams the events after a number.
pub(crate) fn events(desk: Arc<dyn Desk>, mut last: watch::Receiver<u64>, after: u64) -> Answered {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut at = after;
        // Headers and the first bytes arrive at once, so that the page knows that it is connected.
        let mut comment = Bytes::from_static(b": open\n\n");
        loop {
            if sender.send(comment).await.is_err() {
                return;
            }
            while let Some(rows) = rows_after(&desk, at).await {
                let Some(newest) = rows.last().and_then(|row| row["seq"].as_u64()) else { break };
                for row in &rows {
                    let piece = event(row["seq"].as_u64(), row["kind"].as_str().unwrap_or("event"), row);
                    if sender.send(piece).await.is_err() {
                        return;
                    }
                }
                at = newest;
            }
            comment = Bytes::from_static(b": waiting\n\n");
            tokio::select! {
                _ = last.changed() => {}
                () = tokio::time::sleep(COMMENT) => {}
                () = sender.closed() => return,
            }
        }
    });
    streamed(Pieces(receiver))
}

async fn rows_after(desk: &Arc<dyn Desk>, after: u64) -> Option<Vec<Value>> {
    let desk = Arc::clone(desk);
    let call = Call::Events { after, limit: BATCH };
    match tokio::task::spawn_blocking(move || desk.perform(&call, &Unwatched)).await.ok()?.ok()? {
        Value::Array(rows) => Some(rows),
        _ => None,
    }
}

/// Streams a job from a result on, to its end.
pub(crate) fn job(job: Arc<Job>, after: usize) -> Answered {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut changes = job.changes();
        let mut at = after;
        if sender.send(Bytes::from_static(b": open\n\n")).await.is_err() {
            return;
        }
        loop {
            changes.borrow_and_update();
            let is_over = job.is_over();
            loop {
                let items = job.items(at, 200);
                if items.is_empty() {
                    break;
                }
                for item in items {
                    at += 1;
                    if sender.send(event(Some(at as u64), "item", &item)).await.is_err() {
                        return;
                    }
                }
            }
            let name = if is_over { "end" } else { "progress" };
            if sender.send(event(None, name, &job.json())).await.is_err() || is_over {
                return;
            }
            tokio::select! {
                _ = changes.changed() => tokio::time::sleep(REPORT / 5).await,
                () = tokio::time::sleep(REPORT * 8) => {}
                () = sender.closed() => return,
            }
        }
    });
    streamed(Pieces(receiver))
}
