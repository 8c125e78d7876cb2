-- Workspaces, checkpoints, rollbacks and the history of what happened.
-- Times are microseconds since 1970 in UTC. Ids are ULIDs as text. Hashes are 32 bytes.
-- `seq` is the order of commits: it decides what is newest, because a clock may jump backwards.

CREATE TABLE workspaces (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    root       BLOB NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    head       TEXT REFERENCES checkpoints (id) ON DELETE SET NULL,
    removed_at INTEGER
) STRICT;
CREATE UNIQUE INDEX workspaces_live_root ON workspaces (root) WHERE removed_at IS NULL;
CREATE INDEX workspaces_head ON workspaces (head) WHERE head IS NOT NULL;

-- `parent` and the checkpoints named by rollbacks are history: they stay when the checkpoint is deleted.
CREATE TABLE checkpoints (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    workspace_id   TEXT REFERENCES workspaces (id),
    created_at     INTEGER NOT NULL,
    label          TEXT,
    kind           TEXT NOT NULL,
    reason         TEXT NOT NULL,
    scope          TEXT NOT NULL,
    phase          TEXT,
    role           TEXT,
    plan_id        TEXT,
    session_id     TEXT,
    step_index     INTEGER,
    state_hash     BLOB,
    state_snapshot BLOB,
    progress       TEXT NOT NULL,
    sandbox_ref    TEXT,
    source_tool    TEXT,
    decision_id    TEXT,
    commit_sha     TEXT,
    commit_message TEXT,
    tags           TEXT NOT NULL,
    pinned         INTEGER NOT NULL,
    rollback_used  INTEGER NOT NULL,
    rollback_count INTEGER NOT NULL,
    size_bytes     INTEGER NOT NULL,
    files          TEXT NOT NULL,
    parent         TEXT,
    integrity      BLOB NOT NULL,
    warnings       TEXT NOT NULL
) STRICT;
CREATE INDEX checkpoints_workspace ON checkpoints (workspace_id, role);
CREATE INDEX checkpoints_label ON checkpoints (label) WHERE label IS NOT NULL;

CREATE TABLE checkpoint_parts (
    checkpoint_id TEXT NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,
    position      INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    key           TEXT NOT NULL,
    document      BLOB NOT NULL,
    PRIMARY KEY (checkpoint_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE rollbacks (
    seq                  INTEGER PRIMARY KEY AUTOINCREMENT,
    id                   TEXT NOT NULL UNIQUE,
    workspace_id         TEXT NOT NULL REFERENCES workspaces (id),
    verb                 TEXT NOT NULL,
    answers              TEXT,
    from_checkpoint      TEXT,
    to_checkpoint        TEXT NOT NULL,
    safety_checkpoint    TEXT,
    strategy             TEXT NOT NULL,
    paths                TEXT NOT NULL,
    state                TEXT NOT NULL,
    created_at           INTEGER NOT NULL,
    finished_at          INTEGER,
    actor                TEXT NOT NULL,
    restored_files_count INTEGER NOT NULL,
    removed_files_count  INTEGER NOT NULL,
    changed_paths        BLOB,
    error                TEXT
) STRICT;
CREATE INDEX rollbacks_workspace ON rollbacks (workspace_id);
CREATE INDEX rollbacks_unfinished ON rollbacks (state) WHERE state IN ('applying', 'done');
-- Two intents at once would leave recovery without one old state to go back to.
CREATE UNIQUE INDEX rollbacks_one_applying ON rollbacks (workspace_id) WHERE state = 'applying';

-- Keyed by the number of the rollback, not its id: an intent may have many thousands of steps.
CREATE TABLE rollback_steps (
    rollback_seq INTEGER NOT NULL REFERENCES rollbacks (seq) ON DELETE CASCADE,
    position     INTEGER NOT NULL,
    step         TEXT NOT NULL,
    PRIMARY KEY (rollback_seq, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE rescued (
    rollback_id   TEXT NOT NULL REFERENCES rollbacks (id) ON DELETE CASCADE,
    position      INTEGER NOT NULL,
    path          BLOB NOT NULL,
    checkpoint_id TEXT NOT NULL,
    why           TEXT NOT NULL,
    PRIMARY KEY (rollback_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    subject  TEXT NOT NULL,
    payload  TEXT NOT NULL,
    previous BLOB NOT NULL,
    hash     BLOB NOT NULL
) STRICT;

-- The end of the chain of events: without it, taking away the last events would go unseen.
CREATE TABLE event_head (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    seq  INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
INSERT INTO event_head (only, seq, hash) VALUES (1, 0, zeroblob(32));

-- Read before anything else when a catalog is opened.
PRAGMA application_id = 1397769044;
PRAGMA user_version = 1;
