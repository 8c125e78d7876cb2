-- Attempts: work on a project in a room of its own. Each has a workspace of its own, to which its checkpoints belong.
CREATE TABLE attempts (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    place_id     TEXT NOT NULL REFERENCES workspaces (id),
    number       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    room         BLOB NOT NULL,
    state        TEXT NOT NULL,
    base         TEXT NOT NULL,
    result       TEXT,
    run          TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    closed_at    INTEGER,
    is_removed   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (workspace_id, number)
) STRICT;
CREATE UNIQUE INDEX attempts_open ON attempts (workspace_id, name) WHERE state = 'open';
CREATE INDEX attempts_place ON attempts (place_id);
CREATE INDEX attempts_needed ON attempts (base) WHERE state = 'open';

-- Numbers that work reported, until the next checkpoint of the workspace takes them.
CREATE TABLE metrics (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    name         TEXT NOT NULL,
    value        REAL NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT;
ALTER TABLE checkpoints ADD COLUMN metrics TEXT NOT NULL DEFAULT '{}';

PRAGMA user_version = 15;
