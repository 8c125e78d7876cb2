-- Threads: conversations of agents. States never change; heads move. An id is one in its workspace, or in the home.
CREATE TABLE thread (
    seq          INTEGER PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    id           TEXT NOT NULL,
    serializer   TEXT,
    version      INTEGER NOT NULL,
    document     BLOB,
    ttl          INTEGER,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (workspace_id, id)
) STRICT;
CREATE INDEX thread_ttl ON thread (updated_at) WHERE ttl IS NOT NULL;

-- Values of channels, bodies and writes: the bytes themselves, or pieces after those of an earlier value.
CREATE TABLE thread_value (
    seq        INTEGER PRIMARY KEY,
    thread_seq INTEGER NOT NULL REFERENCES thread (seq),
    ns         TEXT NOT NULL,
    channel    TEXT,
    version    TEXT,
    encoding   TEXT NOT NULL,
    size       INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    bytes      BLOB,
    base       INTEGER REFERENCES thread_value (seq),
    shared     INTEGER NOT NULL DEFAULT 0,
    depth      INTEGER NOT NULL DEFAULT 0,
    pieces     BLOB
) STRICT;
CREATE INDEX thread_value_channel ON thread_value (thread_seq, ns, channel, version) WHERE channel IS NOT NULL;
CREATE INDEX thread_value_base ON thread_value (base) WHERE base IS NOT NULL;

CREATE TABLE thread_state (
    seq        INTEGER PRIMARY KEY,
    thread_seq INTEGER NOT NULL REFERENCES thread (seq),
    ns         TEXT NOT NULL,
    id         TEXT NOT NULL,
    parent     TEXT,
    run_id     TEXT,
    metadata   TEXT NOT NULL,
    body       INTEGER NOT NULL REFERENCES thread_value (seq),
    channels   TEXT NOT NULL,
    files      TEXT,
    hidden     INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    UNIQUE (thread_seq, ns, id)
) STRICT;
CREATE INDEX thread_state_order ON thread_state (thread_seq, id, seq);
CREATE INDEX thread_state_body ON thread_state (body);
CREATE INDEX thread_state_run ON thread_state (run_id) WHERE run_id IS NOT NULL;

-- Writes of tasks that the next state takes in. They may come before their state.
CREATE TABLE thread_write (
    thread_seq INTEGER NOT NULL REFERENCES thread (seq),
    ns         TEXT NOT NULL,
    state_id   TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    idx        INTEGER NOT NULL,
    channel    TEXT NOT NULL,
    value      INTEGER NOT NULL REFERENCES thread_value (seq),
    task_path  TEXT NOT NULL,
    PRIMARY KEY (thread_seq, ns, state_id, task_id, idx)
) STRICT;
CREATE INDEX thread_write_value ON thread_write (value);

-- The latest state of each namespace: the one that was committed or restored last.
CREATE TABLE thread_head (
    thread_seq INTEGER NOT NULL REFERENCES thread (seq),
    ns         TEXT NOT NULL,
    state_seq  INTEGER NOT NULL REFERENCES thread_state (seq),
    PRIMARY KEY (thread_seq, ns)
) STRICT;
CREATE INDEX thread_head_state ON thread_head (state_seq);

-- Pieces that are in no pack yet.
CREATE TABLE thread_chunk (
    id    BLOB PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

PRAGMA user_version = 14;
