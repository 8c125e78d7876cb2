-- What housekeeping has to remember.

CREATE TABLE upkeep (
    only             INTEGER PRIMARY KEY CHECK (only = 1),
    deleted_since_gc INTEGER NOT NULL
) STRICT;
INSERT INTO upkeep (only, deleted_since_gc) VALUES (1, 0);

PRAGMA user_version = 2;
