//! Records in PostgreSQL: each call is one function of the schema `safepoint`, in one statement.
//!
//! The functions are in `migrations/`. They carry the number of the protocol, and decide everything by the
//! clock and the locks of the server.

pub(crate) mod link;
mod migrate;
mod place;
mod roles;

use crate::document::{LineState, PackInfo};
use crate::environment::RemoteEnvironment;
use crate::name::{Fence, PackName, ProjectName};
use crate::records::{
    Candidates, LEASE, MemberGrant, NewLine, PROTOCOL, PublishCall, RecordsStatus, RemoteCheckpoint,
    RemoteFilter, RemoteLine, RemotePolicy, RemoteRecords, Renewal, Restored, RestoredPush, TakeoverCall,
};
use crate::runtime::Network;
use crate::{RecordsUrl, RemoteError};
use link::{Link, Patience};
pub use migrate::records_schema;
use place::Place;
pub use roles::roles_sql;
use safepoint_model::{CheckpointId, LineId, WorkspaceId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Patience = Patience { statement: Duration::from_secs(30), all: Duration::from_secs(30) };
/// Limit of statements that read whole tables.
const LONG: Duration = Duration::from_secs(600);

/// Records of one project in a PostgreSQL database.
pub struct PostgresRecords {
    link: Link,
    /// For upkeep: a statement may take longer.
    patient: Link,
    project: ProjectName,
}

impl PostgresRecords {
    /// Prepares the connection, which is opened with the first call.
    ///
    /// # Errors
    /// When the address or a file with credentials cannot be used.
    pub fn open(
        url: &RecordsUrl,
        project: ProjectName,
        environment: &RemoteEnvironment,
    ) -> Result<Self, RemoteError> {
        Self::open_with(url, project, environment, Network::start()?, PATIENCE)
    }

    pub(crate) fn open_with(
        url: &RecordsUrl,
        project: ProjectName,
        environment: &RemoteEnvironment,
        network: Network,
        patience: Patience,
    ) -> Result<Self, RemoteError> {
        let place = Place::of(url, environment)?;
        let long = Patience { statement: LONG, all: LONG };
        let patient = Link::new(network.clone(), place.clone(), long)?;
        Ok(Self { link: Link::new(network, place, patience)?, patient, project })
    }

    /// Limits the time of all attempts of a call.
    pub fn limit(&mut self, all: Duration) {
        self.link.patience = Patience { statement: all.min(PATIENCE.statement), all };
    }

    fn ask<T: DeserializeOwned>(
        &self,
        attempt: &str,
        function: &str,
        call: &impl Serialize,
    ) -> Result<T, RemoteError> {
        self.ask_by(&self.link, attempt, function, call)?.ok_or_else(|| {
            RemoteError::damaged("an answer of the records", format!("{function} returned nothing"))
        })
    }

    fn ask_long<T: DeserializeOwned>(
        &self,
        attempt: &str,
        function: &str,
        call: &impl Serialize,
    ) -> Result<T, RemoteError> {
        self.ask_by(&self.patient, attempt, function, call)?.ok_or_else(|| {
            RemoteError::damaged("an answer of the records", format!("{function} returned nothing"))
        })
    }

    fn ask_by<T: DeserializeOwned>(
        &self,
        link: &Link,
        attempt: &str,
        function: &str,
        call: &impl Serialize,
    ) -> Result<Option<T>, RemoteError> {
        match link.call(attempt, function, self.project.as_str(), call) {
            Err(RemoteError::NoProject { .. }) => {
                Err(RemoteError::NoProject { project: self.project.to_string() })
            }
            // A function of this protocol is missing: a newer schema dropped it, or there is no schema.
            Err(RemoteError::NotInitialized) => Err(self.why_missing()),
            other => other,
        }
    }

    fn why_missing(&self) -> RemoteError {
        match self.protocols() {
            Ok(protocols) => {
                let (first, last) = (protocols.iter().min(), protocols.iter().max());
                match (first, last) {
                    (Some(first), _) if *first > PROTOCOL => {
                        RemoteError::ProtocolTooOld { known: PROTOCOL, supported_from: *first }
                    }
                    (_, Some(last)) => RemoteError::ProtocolTooNew { known: PROTOCOL, supported_to: *last },
                    _ => RemoteError::NotInitialized,
                }
            }
            Err(error) => error,
        }
    }
}

/// Answer of a function that decides.
#[derive(Deserialize)]
struct Answer {
    outcome: String,
    #[serde(default)]
    token: u64,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    incarnation: u64,
    #[serde(default)]
    packs: Vec<Value>,
    #[serde(default)]
    holder: Option<String>,
    #[serde(default)]
    left: u64,
}

impl Answer {
    /// Returns the refusal as an error. `remembered` is the sequence number that this machine knows.
    fn refusal(self, line: LineId, remembered: u64, project: &ProjectName) -> RemoteError {
        match self.outcome.as_str() {
            "fenced" => RemoteError::Fenced { line, token: self.token, seq: self.seq },
            "gone" => {
                let packs = self.packs.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                RemoteError::Gone { line, packs }
            }
            "over_quota" => RemoteError::OverQuota { project: project.to_string() },
            "behind" if remembered == 0 && self.seq == 0 => RemoteError::NoLine { line },
            "behind" => RemoteError::Behind {
                line,
                remembered_seq: remembered,
                found_seq: self.seq,
                incarnation: self.incarnation,
            },
            "live" => RemoteError::Live {
                line,
                holder: self.holder.unwrap_or_else(|| "an unnamed holder".to_owned()),
                left: Duration::from_micros(self.left).min(LEASE),
            },
            "no_line" => RemoteError::NoLine { line },
            other => {
                RemoteError::damaged("an answer of the records", format!("the outcome `{other}` is unknown"))
            }
        }
    }
}

fn state_or_refusal(answer: Value, line: LineId, project: &ProjectName) -> Result<LineState, RemoteError> {
    let wrong =
        |error: serde_json::Error| RemoteError::damaged("an answer of the records", error.to_string());
    match answer.get("outcome").and_then(Value::as_str) {
        Some("begun" | "taken") => serde_json::from_value(answer).map_err(wrong),
        _ => Err(serde_json::from_value::<Answer>(answer).map_err(wrong)?.refusal(line, 0, project)),
    }
}

#[derive(Deserialize)]
struct PackNames {
    packs: Vec<PackName>,
}

#[derive(Deserialize)]
struct Count {
    #[serde(
        alias = "deleted",
        alias = "condemned",
        alias = "orphans",
        alias = "bytes",
        alias = "incarnation"
    )]
    count: u64,
}

impl RemoteRecords for PostgresRecords {
    fn status(&self) -> Result<RecordsStatus, RemoteError> {
        let status: RecordsStatus = self.ask("read the state of the remote", "status_1", &json!({}))?;
        match status.protocols.contains(&PROTOCOL) {
            true => Ok(status),
            false => Err(self.why_missing()),
        }
    }

    fn begin_line(&self, line: &NewLine) -> Result<LineState, RemoteError> {
        state_or_refusal(self.ask("begin a line", "begin_line_1", line)?, line.line, &self.project)
    }

    fn publish(&self, call: &PublishCall) -> Result<(), RemoteError> {
        let answer: Answer = self.ask("publish", "publish_1", call)?;
        match answer.outcome.as_str() {
            "published" => Ok(()),
            _ => Err(answer.refusal(call.line, call.base_seq, &self.project)),
        }
    }

    fn renew(&self, fence: Fence) -> Result<Renewal, RemoteError> {
        let answer: Answer = self.ask("renew a lease", "renew_1", &fence)?;
        match answer.outcome.as_str() {
            "held" => Ok(Renewal { seq: answer.seq, incarnation: answer.incarnation }),
            _ => Err(answer.refusal(fence.line, 1, &self.project)),
        }
    }

    fn release(&self, fence: Fence) -> Result<(), RemoteError> {
        self.ask::<Value>("release a lease", "release_1", &fence).map(|_| ())
    }

    fn take_over(&self, call: &TakeoverCall) -> Result<LineState, RemoteError> {
        state_or_refusal(self.ask("take over a line", "takeover_1", call)?, call.line, &self.project)
    }

    fn lines(
        &self,
        workspace: Option<WorkspaceId>,
        plan: Option<&str>,
    ) -> Result<Vec<RemoteLine>, RemoteError> {
        #[derive(Deserialize)]
        struct Lines {
            lines: Vec<RemoteLine>,
        }
        let call = json!({ "workspace": workspace, "plan": plan });
        Ok(self.ask::<Lines>("list lines", "lines_1", &call)?.lines)
    }

    fn checkpoints(&self, filter: &RemoteFilter) -> Result<Vec<RemoteCheckpoint>, RemoteError> {
        #[derive(Deserialize)]
        struct Found {
            checkpoints: Vec<RemoteCheckpoint>,
        }
        Ok(self.ask::<Found>("list checkpoints", "checkpoints_1", filter)?.checkpoints)
    }

    fn checkpoint(&self, id: CheckpointId) -> Result<Option<RemoteCheckpoint>, RemoteError> {
        let found: Option<One> =
            self.ask_by(&self.link, "read a checkpoint", "checkpoint_1", &json!({ "id": id }))?;
        Ok(found.map(|found| found.checkpoint))
    }

    fn random_checkpoint(&self) -> Result<Option<RemoteCheckpoint>, RemoteError> {
        let found: Option<One> = self.ask_by(&self.patient, "read a checkpoint", "random_1", &json!({}))?;
        Ok(found.map(|found| found.checkpoint))
    }

    fn policy(&self) -> Result<RemotePolicy, RemoteError> {
        Ok(self.ask::<Policy>("read the policy", "policy_1", &json!({}))?.policy)
    }

    fn set_policy(&self, policy: &RemotePolicy) -> Result<(), RemoteError> {
        self.ask::<Policy>("set the policy", "policy_1", &json!({ "policy": policy })).map(|_| ())
    }

    fn delete_by_policy(&self) -> Result<u64, RemoteError> {
        let call = json!({ "policy": self.policy()? });
        let mut all = 0;
        loop {
            let deleted = self.ask_long::<Count>("delete checkpoints", "expire_1", &call)?.count;
            all += deleted;
            if deleted == 0 {
                return Ok(all);
            }
        }
    }

    fn delete(&self, checkpoints: &[CheckpointId]) -> Result<u64, RemoteError> {
        Ok(self.ask_long::<Count>("delete checkpoints", "delete_1", &json!({ "ids": checkpoints }))?.count)
    }

    fn candidates(&self) -> Result<Candidates, RemoteError> {
        self.ask_long("find unlisted packs", "candidates_1", &json!({}))
    }

    fn condemn(&self, candidates: &Candidates) -> Result<u64, RemoteError> {
        Ok(self.ask_long::<Count>("condemn packs", "condemn_1", candidates)?.count)
    }

    fn condemn_now(&self, packs: &[PackName]) -> Result<(), RemoteError> {
        let answer: Answer = self.ask_long("condemn packs", "condemn_now_1", &json!({ "packs": packs }))?;
        match answer.outcome.as_str() {
            "condemned" => Ok(()),
            _ => {
                let packs = answer.packs.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                Err(RemoteError::StillListed { packs })
            }
        }
    }

    fn due(&self, grace: Duration, limit: u32) -> Result<Vec<PackName>, RemoteError> {
        let call = json!({ "grace": grace.as_secs_f64(), "limit": limit });
        Ok(self.ask_long::<PackNames>("list condemned packs", "due_1", &call)?.packs)
    }

    fn note_gone(&self, packs: &[PackName]) -> Result<(), RemoteError> {
        self.ask_long::<Value>("record deleted packs", "note_gone_1", &json!({ "packs": packs })).map(|_| ())
    }

    fn superseded(&self, silent: Duration) -> Result<Vec<Fence>, RemoteError> {
        #[derive(Deserialize)]
        struct Fences {
            fences: Vec<Fence>,
        }
        let call = json!({ "silent": silent.as_secs_f64() });
        Ok(self.ask_long::<Fences>("find superseded tokens", "superseded_1", &call)?.fences)
    }

    fn note_orphans(&self, fence: Fence, found: &[PackInfo], late: Duration) -> Result<u64, RemoteError> {
        let call = json!({ "fence": fence, "found": found, "late": late.as_secs_f64() });
        Ok(self.ask_long::<Count>("condemn uploads", "orphans_1", &call)?.count)
    }

    fn measure(&self) -> Result<u64, RemoteError> {
        Ok(self.ask_long::<Count>("measure the project", "measure_1", &json!({}))?.count)
    }

    fn begin_rebuild(&self, after: u64) -> Result<u64, RemoteError> {
        Ok(self.ask_long::<Count>("begin a rebuild", "begin_rebuild_1", &json!({ "after": after }))?.count)
    }

    fn restore(&self, incarnation: u64, pushes: &[RestoredPush]) -> Result<Restored, RemoteError> {
        let call = json!({ "incarnation": incarnation, "pushes": pushes });
        self.ask_long("restore records", "restore_1", &call)
    }

    fn live_packs(&self) -> Result<Vec<PackName>, RemoteError> {
        Ok(self.ask_long::<PackNames>("list packs", "live_packs_1", &json!({}))?.packs)
    }

    fn set_member(&self, member: &MemberGrant) -> Result<(), RemoteError> {
        self.ask::<Value>("set a member", "member_1", member).map(|_| ())
    }
}

#[derive(Deserialize)]
struct One {
    checkpoint: RemoteCheckpoint,
}

#[derive(Deserialize)]
struct Policy {
    policy: RemotePolicy,
}
