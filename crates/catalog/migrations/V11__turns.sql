-- Turns of agents: one prompt each, with the checkpoints before and after the work for it. Rows stay, so that
-- numbers are never used again. A checkpoint of a turn may be pruned.
CREATE TABLE turns (
    seq             INTEGER PRIMARY KEY,
    workspace_id    TEXT NOT NULL REFERENCES workspaces (id),
    number          INTEGER NOT NULL,
    agent           TEXT NOT NULL,
    session_id      TEXT NOT NULL,
    key             TEXT,
    prompt          TEXT NOT NULL,
    model           TEXT,
    permission_mode TEXT,
    opened_at       INTEGER NOT NULL,
    closed_at       INTEGER,
    before_id       TEXT,
    after_id        TEXT,
    commands        INTEGER NOT NULL DEFAULT 0,
    changes         TEXT,
    not_covered     TEXT,
    UNIQUE (workspace_id, number)
) STRICT;
CREATE INDEX turns_open ON turns (session_id) WHERE closed_at IS NULL;
CREATE INDEX turns_before ON turns (before_id) WHERE before_id IS NOT NULL;
CREATE INDEX turns_after ON turns (after_id) WHERE after_id IS NOT NULL;

-- Sessions of agents whose hooks ran in a workspace.
CREATE TABLE hook_sessions (
    session_id   TEXT NOT NULL,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    agent        TEXT NOT NULL,
    seen_at      INTEGER NOT NULL,
    ended_at     INTEGER,
    PRIMARY KEY (session_id, workspace_id)
) STRICT;

-- Events that were handled: agents report the same one several times.
CREATE TABLE hook_events (
    key TEXT PRIMARY KEY,
    at  INTEGER NOT NULL
) STRICT;

-- Rollbacks that a session was not told about yet.
CREATE TABLE hook_notes (
    session_id  TEXT NOT NULL,
    rollback_id TEXT NOT NULL,
    PRIMARY KEY (session_id, rollback_id)
) STRICT;

PRAGMA user_version = 11;
