-- What each rollback was asked to put back: a list of kinds of parts, empty for all of them. Undo and redo go by it.
ALTER TABLE rollbacks ADD COLUMN parts TEXT NOT NULL DEFAULT '[]';
-- From before: a plan or a session that went back alone stands in the safety checkpoint, and the repository's folder in the paths.
UPDATE rollbacks SET parts = '["git"]' WHERE paths = '[".git"]';
UPDATE rollbacks SET parts = '["session"]' WHERE strategy = 'selective' AND paths = '[]' AND together IS NULL
    AND safety_checkpoint IN (SELECT checkpoint_id FROM checkpoint_parts WHERE kind = 'session');
UPDATE rollbacks SET parts = '["plan"]' WHERE strategy = 'selective' AND paths = '[]' AND together IS NULL
    AND safety_checkpoint IN (SELECT checkpoint_id FROM checkpoint_parts WHERE kind = 'plan');

-- What a part needs to be put back after a crash, for parts that are not files: written with the intent of the rollback.
-- `program` says whose part it is, so that one which is not known here can be named.
CREATE TABLE rollback_parts (
    rollback_id TEXT NOT NULL REFERENCES rollbacks (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    key         TEXT NOT NULL,
    program     TEXT NOT NULL,
    note        BLOB NOT NULL,
    PRIMARY KEY (rollback_id, position)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 9;
