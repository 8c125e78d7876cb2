-- What a registered folder is for. An agent's folder is not somebody's project.
ALTER TABLE workspaces ADD COLUMN kind TEXT NOT NULL DEFAULT 'project';

-- Rollbacks of several folders that are one: all of them are done, or none.
ALTER TABLE rollbacks ADD COLUMN together TEXT;
CREATE INDEX rollbacks_together ON rollbacks (together) WHERE together IS NOT NULL;

CREATE TABLE agents (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL UNIQUE,
    settings   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE agent_paths (
    agent_seq INTEGER NOT NULL REFERENCES agents (seq) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    path      BLOB NOT NULL,
    PRIMARY KEY (agent_seq, position)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 7;
