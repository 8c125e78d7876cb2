//! Parameters of methods. Unknown fields are refused.

use super::frame::Frame;
use safepoint::model::CheckpointId;
use safepoint::model::thread::ThreadValue;
use safepoint::{ExistingWrites, ListStates, ListedStates, ListedValues, NewState, NewWrite, NewWrites};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// Name of the client, recorded as the tool.
    pub(super) client: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Words {
    /// Words of a command line, without the program.
    pub(super) args: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Folder {
    pub(super) path: String,
}

/// Thread to be deleted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    pub(super) workspace: Option<String>,
    pub(super) thread: String,
    /// From all checkpoints, too.
    #[serde(default)]
    pub(super) erase: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    pub(super) workspace: Option<String>,
    pub(super) thread: String,
    pub(super) state: StateInput,
    /// A checkpoint of the files is taken, too.
    pub(super) capture: Option<Capture>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Capture {
    pub(super) label: Option<String>,
    /// Equal files name the checkpoint that has them.
    pub(super) only_if_changed: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attachment {
    encoding: String,
    bytes: (u64, u64),
}

impl Attachment {
    fn load(&self, frame: &Frame) -> Result<ThreadValue, String> {
        frame.value(&self.encoding, self.bytes)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateInput {
    #[serde(default)]
    namespace: String,
    id: String,
    parent: Option<String>,
    run_id: Option<String>,
    #[serde(default)]
    metadata: Map<String, Value>,
    body: Attachment,
    #[serde(default)]
    channels: BTreeMap<String, String>,
    #[serde(default)]
    values: BTreeMap<String, Option<Attachment>>,
    files: Option<CheckpointId>,
    serializer: Option<String>,
    ttl_ms: Option<u64>,
}

impl StateInput {
    pub(super) fn load(self, frame: &Frame) -> Result<NewState, String> {
        let load = |(name, value): (String, Option<Attachment>)| {
            Ok::<_, String>((name, value.map(|value| value.load(frame)).transpose()?))
        };
        Ok(NewState {
            namespace: self.namespace,
            id: self.id,
            parent: self.parent,
            run_id: self.run_id,
            metadata: self.metadata,
            body: self.body.load(frame)?,
            channels: self.channels,
            values: self.values.into_iter().map(load).collect::<Result<_, _>>()?,
            files: self.files,
            serializer: self.serializer,
            ttl: self.ttl_ms.map(Duration::from_millis),
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutWrites {
    pub(super) workspace: Option<String>,
    pub(super) thread: String,
    #[serde(default)]
    namespace: String,
    state: String,
    task_id: String,
    #[serde(default)]
    task_path: String,
    writes: Vec<WriteInput>,
    /// Recorded writes of the same task and index are replaced.
    #[serde(default)]
    replace: bool,
    serializer: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteInput {
    index: i64,
    channel: String,
    value: Attachment,
}

impl PutWrites {
    pub(super) fn load(self, frame: &Frame) -> Result<NewWrites, String> {
        let load = |write: WriteInput| {
            Ok::<_, String>(NewWrite {
                index: write.index,
                value: write.value.load(frame)?,
                channel: write.channel,
            })
        };
        let existing = if self.replace { ExistingWrites::Replaced } else { ExistingWrites::Kept };
        Ok(NewWrites {
            namespace: self.namespace,
            state: self.state,
            task_id: self.task_id,
            task_path: self.task_path,
            writes: self.writes.into_iter().map(load).collect::<Result<_, _>>()?,
            existing,
            serializer: self.serializer,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Get {
    pub(super) workspace: Option<String>,
    pub(super) thread: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct List {
    pub(super) workspace: Option<String>,
    thread: Option<String>,
    namespace: Option<String>,
    id: Option<String>,
    before: Option<String>,
    metadata: Map<String, Value>,
    limit: Option<u64>,
    after: Option<String>,
    /// Only heads.
    heads: bool,
    /// Without values.
    bare: bool,
}

impl List {
    pub(super) fn wanted(self) -> ListStates {
        let List { thread, namespace, id, before, metadata, limit, after, .. } = self;
        let which = if self.heads { ListedStates::Heads } else { ListedStates::All };
        let values = if self.bare { ListedValues::Omitted } else { ListedValues::Loaded };
        ListStates { thread, namespace, id, before, metadata, limit, after, which, values }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Runs {
    pub(super) workspace: Option<String>,
    pub(super) runs: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Copy {
    pub(super) workspace: Option<String>,
    pub(super) from: String,
    pub(super) to: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prune {
    pub(super) workspace: Option<String>,
    pub(super) thread: String,
    #[serde(default = "one")]
    pub(super) last: u64,
    #[serde(default)]
    pub(super) hidden_ancestors: u64,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackTo {
    pub(super) workspace: String,
    pub(super) thread: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) id: String,
    #[serde(default)]
    pub(super) dry_run: bool,
    /// State to be saved after it.
    pub(super) state: Option<StateInput>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfWorkspace {
    pub(super) workspace: Option<String>,
}
