-- Sessions: what somebody asked for, how far it is, and what was counted on the way.
-- Ids are in UUID form, as in `checkpoints.session_id`. Checkpoints may name a session that is on no record, and keep its name when it is deleted.
CREATE TABLE sessions (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    id                  TEXT NOT NULL UNIQUE,
    request             TEXT NOT NULL,
    status              TEXT NOT NULL,
    -- Where a paused one goes on.
    paused_from         TEXT,
    configuration       TEXT NOT NULL,
    git_context         TEXT,
    tasks_completed     INTEGER NOT NULL,
    tasks_failed        INTEGER NOT NULL,
    decisions_made      INTEGER NOT NULL,
    checkpoints_created INTEGER NOT NULL,
    error_recoveries    INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    finished_at         INTEGER
) STRICT;

PRAGMA user_version = 6;
