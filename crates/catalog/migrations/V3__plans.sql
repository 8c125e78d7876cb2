-- Plans: what is live, as rows that a rollback replaces, and what is kept for the record.

CREATE TABLE plans (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    title        TEXT NOT NULL,
    state        TEXT NOT NULL,
    -- Grows with every change, also with a rollback: it orders what happened to a plan, whatever the clock says.
    version      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    -- What of the plan has no rows of its own.
    head         TEXT NOT NULL
) STRICT;
CREATE INDEX plans_workspace ON plans (workspace_id);

-- `step`, `decision`, `context` and `output`, in their order.
CREATE TABLE plan_items (
    plan_seq INTEGER NOT NULL REFERENCES plans (seq) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    position INTEGER NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (plan_seq, kind, position)
) STRICT, WITHOUT ROWID;

-- What happened to a plan and is not part of its state: errors, superseded decisions, invalidated subplans, corrections.
CREATE TABLE plan_notes (
    plan_seq INTEGER NOT NULL REFERENCES plans (seq) ON DELETE CASCADE,
    number   INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (plan_seq, number)
) STRICT, WITHOUT ROWID;

-- At which version of its plan a checkpoint was taken, and whether the plan was healthy then.
CREATE TABLE plan_checkpoints (
    checkpoint_id TEXT PRIMARY KEY REFERENCES checkpoints (id) ON DELETE CASCADE,
    plan_seq      INTEGER NOT NULL REFERENCES plans (seq) ON DELETE CASCADE,
    version       INTEGER NOT NULL,
    healthy       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX plan_checkpoints_plan ON plan_checkpoints (plan_seq, version);
CREATE INDEX checkpoints_plan ON checkpoints (plan_id) WHERE plan_id IS NOT NULL;

-- Where plans work that do not work in the workspace itself.
CREATE TABLE sandboxes (
    id         TEXT PRIMARY KEY,
    plan_seq   INTEGER NOT NULL REFERENCES plans (seq) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    path       BLOB NOT NULL,
    state      TEXT NOT NULL,
    base       TEXT,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 3;
