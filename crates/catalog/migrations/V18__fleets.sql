-- Lines that another writer took over from this home.
CREATE TABLE remote_left (
    remote       TEXT NOT NULL REFERENCES remotes (id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL,
    line         TEXT NOT NULL,
    left_at      INTEGER NOT NULL,
    PRIMARY KEY (remote, line)
) STRICT, WITHOUT ROWID;

-- Purges that a remote has not carried out yet. `paths` is a JSON array.
CREATE TABLE remote_purges (
    seq          INTEGER PRIMARY KEY,
    remote       TEXT NOT NULL REFERENCES remotes (id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL,
    paths        TEXT NOT NULL,
    at           INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 18;
