-- Tables of the remote. No table is granted to any role: all access goes through the functions of V2.

CREATE TABLE meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Number of the history of this database. A rebuild raises it, so that clients notice.
    incarnation bigint NOT NULL,
    protocols integer[] NOT NULL
);
INSERT INTO meta (incarnation, protocols) VALUES (1, '{1}');

CREATE TABLE projects (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    policy jsonb NOT NULL DEFAULT '{}',
    over_quota boolean NOT NULL DEFAULT false
);

CREATE TABLE members (
    project integer NOT NULL REFERENCES projects,
    role name NOT NULL,
    may text[] NOT NULL,
    -- The only line that the role may publish to.
    line text,
    PRIMARY KEY (project, role)
);

CREATE TABLE lines (
    id text PRIMARY KEY,
    project integer NOT NULL REFERENCES projects,
    workspace text NOT NULL,
    plan text,
    -- Fencing token: only the writer that knows it may publish.
    token bigint NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    -- Identity of the last accepted request, which may be repeated.
    request text NOT NULL,
    head text,
    chain text NOT NULL,
    holder text,
    -- The lease ends 60 seconds later, by this clock. Null: released.
    renewed_at timestamptz,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
CREATE INDEX lines_of_workspace ON lines (project, workspace);

CREATE TABLE packs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project integer NOT NULL REFERENCES projects,
    line text NOT NULL,
    name text NOT NULL UNIQUE,
    bytes bigint NOT NULL,
    objects bigint NOT NULL,
    state text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'condemned', 'gone')),
    condemned_at timestamptz
);
CREATE INDEX packs_not_live ON packs (project, condemned_at) WHERE state <> 'live';

CREATE TABLE checkpoints (
    line text NOT NULL REFERENCES lines,
    seq bigint NOT NULL,
    n integer NOT NULL,
    project integer NOT NULL,
    id text NOT NULL,
    record text NOT NULL,
    packs bigint[] NOT NULL,
    whole boolean NOT NULL,
    pinned boolean NOT NULL,
    fields jsonb NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (line, seq, n)
);
CREATE INDEX checkpoints_by_id ON checkpoints (id);

-- Superseded tokens, under which uploads may lie that were never published.
CREATE TABLE sweeps (
    line text NOT NULL REFERENCES lines,
    token bigint NOT NULL,
    project integer NOT NULL,
    superseded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (line, token)
);
