-- Who ran a plan, and how that ended. A run without an end whose process is gone was killed.
CREATE TABLE runs (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    plan_seq   INTEGER NOT NULL REFERENCES plans (seq) ON DELETE CASCADE,
    pid        INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT
) STRICT;
CREATE INDEX runs_plan ON runs (plan_seq, seq);

-- A sandbox is a workspace of its own.
ALTER TABLE sandboxes ADD COLUMN workspace_id TEXT REFERENCES workspaces (id);
CREATE INDEX sandboxes_workspace ON sandboxes (workspace_id);

PRAGMA user_version = 5;
