-- What lets the packs rebuild the catalog, and lets the store recognise the catalog.

-- `id` is made with the catalog; `generation` grows when it takes the place of another one.
CREATE TABLE identity (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    id         TEXT NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
INSERT INTO identity (only, id, generation) VALUES (1, lower(hex(randomblob(16))), 1);

-- The record document of each checkpoint: null until it lies in a pack. And the number of the event of its commit.
ALTER TABLE checkpoints ADD COLUMN record BLOB;
ALTER TABLE checkpoints ADD COLUMN event INTEGER;
CREATE INDEX events_created ON events (subject) WHERE kind = 'checkpoint.created';
UPDATE checkpoints SET event =
    (SELECT max(seq) FROM events WHERE kind = 'checkpoint.created' AND subject = checkpoints.id);
DROP INDEX events_created;
CREATE INDEX checkpoints_unrecorded ON checkpoints (seq) WHERE record IS NULL;

-- What was deleted (`integrity` is empty) or purged (`integrity` is the manifest from before).
-- `document` is the tombstone in the packs, null until it lies there.
CREATE TABLE tombstones (
    checkpoint_id TEXT NOT NULL,
    integrity     BLOB NOT NULL,
    document      BLOB,
    PRIMARY KEY (checkpoint_id, integrity)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_unwritten ON tombstones (checkpoint_id) WHERE document IS NULL;

-- Records that count no more and may still lie in a pack: as long as one does, its tombstone is kept.
CREATE TABLE stale_records (
    record        BLOB PRIMARY KEY,
    checkpoint_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stale_records_checkpoint ON stale_records (checkpoint_id);

PRAGMA user_version = 8;
