-- Remotes: where checkpoints are published. Addresses alone; credentials are never stored. `id` is the name.
CREATE TABLE remotes (
    seq      INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    project  TEXT NOT NULL,
    records  TEXT NOT NULL,
    bytes    TEXT NOT NULL,
    identity BLOB,
    added_at INTEGER NOT NULL
) STRICT;

-- Line that a workspace publishes to: its state at the last answer, the checkpoint that the next push is based on,
-- and the push that is under way.
CREATE TABLE remote_lines (
    remote       TEXT NOT NULL REFERENCES remotes (id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL,
    id           TEXT NOT NULL,
    state        TEXT,
    base         TEXT,
    base_content BLOB,
    pending      TEXT,
    PRIMARY KEY (remote, workspace_id)
) STRICT;

-- Published checkpoints. What is not here is still to be published.
CREATE TABLE remote_published (
    remote        TEXT NOT NULL REFERENCES remotes (id) ON DELETE CASCADE,
    checkpoint_id TEXT NOT NULL,
    line          TEXT NOT NULL,
    number        INTEGER NOT NULL,
    PRIMARY KEY (remote, checkpoint_id)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 16;
