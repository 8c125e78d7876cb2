-- Functions of protocol 1: the only access to the tables. Each takes and returns JSON as text, so that a
-- call is one statement without prepared types, which a pooler in transaction mode can route.

-- Readable by every role, so that a client of any version learns why it is refused.
CREATE FUNCTION protocols() RETURNS integer[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$ SELECT protocols FROM meta $$;

-- Projects of the session's role with a right.
CREATE FUNCTION mine(p_right text) RETURNS integer[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
    SELECT coalesce(array_agg(project), '{}') FROM members WHERE role = session_user AND p_right = ANY (may)
$$;

-- Id of a project if the session's role has a right in it.
CREATE FUNCTION need(p_project text, p_right text) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_id integer;
    v_may text[];
BEGIN
    -- Each statement must see what was committed while it waited for a lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'safepoint needs the isolation level read committed';
    END IF;
    SELECT p.id, m.may INTO v_id, v_may FROM projects p JOIN members m ON m.project = p.id
        WHERE p.name = p_project AND m.role = session_user;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no project' USING ERRCODE = 'SP001';
    END IF;
    IF NOT p_right = ANY (v_may) THEN
        RAISE EXCEPTION 'the role % lacks the right to %', session_user, p_right USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN v_id;
END $$;

-- Fails unless the session's role may write to a line.
CREATE FUNCTION need_line(p_project integer, p_line text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM members WHERE project = p_project AND role = session_user AND line <> p_line) THEN
        RAISE EXCEPTION 'the role % may publish to another line only', session_user USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

CREATE FUNCTION micros(p_time timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT (extract(epoch FROM p_time) * 1000000)::bigint $$;

CREATE FUNCTION utc(p_time timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$ SELECT to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- An answered commit is durable, whatever the defaults of the database are.
CREATE FUNCTION make_durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION pack_list(p_ids bigint[]) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'bytes', p.bytes, 'objects', p.objects) ORDER BY u.at), '[]')
    FROM unnest(p_ids) WITH ORDINALITY u (id, at) JOIN packs p ON p.id = u.id
$$;

CREATE FUNCTION line_state(p_project text, p_line text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
    SELECT jsonb_build_object('project', p_project, 'line', l.id, 'workspace', l.workspace, 'plan', l.plan,
        'token', l.token, 'seq', l.seq, 'chain', l.chain, 'head', l.head,
        'incarnation', (SELECT incarnation FROM meta),
        'packs', coalesce((SELECT pack_list(c.packs) FROM checkpoints c WHERE c.line = l.id ORDER BY c.seq DESC, c.n DESC LIMIT 1), '[]'))
    FROM lines l WHERE l.id = p_line
$$;

CREATE FUNCTION status_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
BEGIN
    RETURN jsonb_build_object(
        'incarnation', (SELECT incarnation FROM meta),
        'protocols', (SELECT protocols FROM meta),
        'now', utc(clock_timestamp()),
        'rights', (SELECT may FROM members WHERE project = v_project AND role = session_user),
        'over_quota', (SELECT over_quota FROM projects WHERE id = v_project),
        'server', current_setting('server_version'),
        'synchronous_standby', current_setting('synchronous_standby_names') <> ''
            AND current_setting('synchronous_commit') NOT IN ('off', 'local'),
        'durable', current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
        'schema', (SELECT max(version) FROM schema_history))::text;
END $$;

CREATE FUNCTION begin_line_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'publish');
    v_call jsonb := p_call;
    v_line text := v_call->>'line';
BEGIN
    PERFORM make_durable();
    PERFORM need_line(v_project, v_line);
    INSERT INTO lines (id, project, workspace, plan, token, request, chain, holder, renewed_at)
        SELECT v_line, v_project, v_call->>'workspace', v_call->>'plan', (incarnation - 1) * 4294967296 + 1,
            v_call->>'request', repeat('0', 64), v_call->>'holder', clock_timestamp()
        FROM meta
        ON CONFLICT (id) DO NOTHING;
    IF NOT EXISTS (SELECT FROM lines WHERE id = v_line AND project = v_project AND request = v_call->>'request') THEN
        RETURN jsonb_build_object('outcome', 'fenced', 'token', 0, 'seq', 0)::text;
    END IF;
    RETURN (line_state(p_project, v_line) || '{"outcome": "begun"}')::text;
END $$;

-- Publishes: all in one statement of the client, or nothing.
CREATE FUNCTION publish_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'publish');
    v_call jsonb := p_call;
    v_line text := v_call->>'line';
    v_token bigint := v_call->>'token';
    v_seq bigint := v_call->>'base_seq';
    v_request text := v_call->>'request';
    v_found lines;
    v_incarnation bigint;
    v_gone jsonb;
    v_packs bigint[];
    v_count integer;
    v_prefix text;
BEGIN
    PERFORM make_durable();
    PERFORM need_line(v_project, v_line);
    PERFORM pg_advisory_xact_lock_shared(23294, v_project);
    SELECT incarnation INTO v_incarnation FROM meta;
    SELECT * INTO v_found FROM lines WHERE id = v_line AND project = v_project;
    IF v_found.request = v_request THEN
        RETURN jsonb_build_object('outcome', 'published')::text;
    END IF;
    -- What was condemned stays condemned: the objects must be sent again.
    SELECT jsonb_agg(k.name) INTO v_gone FROM jsonb_array_elements_text(v_call->'kept') k (name)
        WHERE NOT EXISTS (SELECT FROM packs p WHERE p.name = k.name AND p.project = v_project AND p.state = 'live');
    IF v_found.id IS NOT NULL AND v_found.token = v_token AND v_found.seq = v_seq THEN
        IF v_gone IS NOT NULL THEN
            RETURN jsonb_build_object('outcome', 'gone', 'packs', v_gone)::text;
        END IF;
        IF (SELECT over_quota FROM projects WHERE id = v_project) THEN
            RETURN jsonb_build_object('outcome', 'over_quota')::text;
        END IF;
    END IF;
    UPDATE lines SET seq = seq + 1, chain = v_call->>'chain', request = v_request, renewed_at = clock_timestamp(),
            head = coalesce(v_call->'checkpoints'->-1->>'id', head)
        WHERE id = v_line AND project = v_project AND token = v_token AND seq = v_seq
            AND chain = v_call->>'base_chain' AND v_incarnation = (v_call->>'incarnation')::bigint;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count = 0 THEN
        SELECT * INTO v_found FROM lines WHERE id = v_line AND project = v_project;
        IF v_found.token > v_token AND v_found.request <> v_request THEN
            -- Its packs were uploaded under a superseded token, perhaps long after the takeover.
            INSERT INTO sweeps (line, token, project) VALUES (v_line, v_token, v_project)
                ON CONFLICT (line, token) DO UPDATE SET superseded_at = excluded.superseded_at;
        END IF;
        RETURN CASE
            WHEN v_found.request = v_request THEN jsonb_build_object('outcome', 'published')
            -- A takeover, or a copy of the same writer, went on.
            WHEN v_found.token > v_token OR v_found.token = v_token AND v_found.seq > v_seq THEN
                jsonb_build_object('outcome', 'fenced', 'token', v_found.token, 'seq', v_found.seq)
            ELSE jsonb_build_object('outcome', 'behind', 'seq', coalesce(v_found.seq, 0), 'incarnation', v_incarnation)
        END::text;
    END IF;
    v_prefix := p_project || '/' || v_line || '/' || v_token || '/' || (v_seq + 1) || '-';
    IF EXISTS (SELECT FROM jsonb_array_elements(v_call->'new') k
            WHERE left(k->>'name', length(v_prefix)) <> v_prefix OR length(k->>'name') <> length(v_prefix) + 69) THEN
        RAISE EXCEPTION 'a pack has a name of another push';
    END IF;
    WITH added AS (
        INSERT INTO packs (project, line, name, bytes, objects)
            SELECT v_project, v_line, k->>'name', (k->>'bytes')::bigint, (k->>'objects')::bigint
            FROM jsonb_array_elements(v_call->'new') k
            RETURNING id, name)
    SELECT array_agg(coalesce(a.id, p.id) ORDER BY l.at) INTO v_packs
        FROM (SELECT name, at FROM jsonb_array_elements_text(v_call->'kept') WITH ORDINALITY k (name, at)
            UNION ALL
            SELECT k.pack->>'name', 1000 + at FROM jsonb_array_elements(v_call->'new') WITH ORDINALITY k (pack, at)) l
        LEFT JOIN added a ON a.name = l.name
        LEFT JOIN packs p ON p.name = l.name AND p.project = v_project;
    IF cardinality(v_packs) > 256 THEN
        RAISE EXCEPTION 'a list has more than 256 packs';
    END IF;
    INSERT INTO checkpoints (line, seq, n, project, id, record, packs, whole, pinned, fields)
        SELECT v_line, v_seq + 1, c.at - 1, v_project, c.row->>'id', c.row->>'record', v_packs, (v_call->>'whole')::boolean,
            (c.row->>'pinned')::boolean, c.row->'fields'
        FROM jsonb_array_elements(v_call->'checkpoints') WITH ORDINALITY c (row, at);
    IF jsonb_array_length(v_call->'replaced') > 0 THEN
        PERFORM need(p_project, 'upkeep');
        UPDATE checkpoints c SET record = r->'row'->>'record', packs = v_packs, whole = false, fields = r->'row'->'fields'
            FROM jsonb_array_elements(v_call->'replaced') r
            WHERE c.project = v_project AND c.line = r->>'line' AND c.seq = (r->>'seq')::bigint AND c.n = (r->>'n')::integer;
    END IF;
    RETURN jsonb_build_object('outcome', 'published')::text;
END $$;

CREATE FUNCTION renew_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'publish');
    v_call jsonb := p_call;
    v_found lines;
BEGIN
    UPDATE lines SET renewed_at = clock_timestamp()
        WHERE id = v_call->>'line' AND project = v_project AND token = (v_call->>'token')::bigint
        RETURNING * INTO v_found;
    IF FOUND THEN
        RETURN jsonb_build_object('outcome', 'held', 'seq', v_found.seq, 'incarnation', (SELECT incarnation FROM meta))::text;
    END IF;
    SELECT * INTO v_found FROM lines WHERE id = v_call->>'line' AND project = v_project;
    RETURN CASE
        WHEN v_found.token > (v_call->>'token')::bigint THEN
            jsonb_build_object('outcome', 'fenced', 'token', v_found.token, 'seq', v_found.seq)
        ELSE jsonb_build_object('outcome', 'behind', 'seq', coalesce(v_found.seq, 0), 'incarnation', (SELECT incarnation FROM meta))
    END::text;
END $$;

CREATE FUNCTION release_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'publish');
    v_call jsonb := p_call;
BEGIN
    UPDATE lines SET renewed_at = NULL
        WHERE id = v_call->>'line' AND project = v_project AND token = (v_call->>'token')::bigint;
    RETURN '{"outcome": "released"}';
END $$;

CREATE FUNCTION takeover_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'publish');
    v_call jsonb := p_call;
    v_line text := v_call->>'line';
    v_found lines;
    v_old bigint;
BEGIN
    PERFORM make_durable();
    IF v_call->>'only_chain' IS NULL THEN
        PERFORM need(p_project, 'takeover');
    END IF;
    PERFORM need_line(v_project, v_line);
    SELECT * INTO v_found FROM lines WHERE id = v_line AND project = v_project FOR UPDATE;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('outcome', 'no_line')::text;
    ELSIF v_found.request = v_call->>'request' THEN
        RETURN (line_state(p_project, v_line) || '{"outcome": "taken"}')::text;
    ELSIF v_found.chain <> v_call->>'only_chain' THEN
        RETURN jsonb_build_object('outcome', 'fenced', 'token', v_found.token, 'seq', v_found.seq)::text;
    ELSIF v_call->>'lease' <> 'broken' AND v_found.renewed_at + interval '60 seconds' > clock_timestamp() THEN
        RETURN jsonb_build_object('outcome', 'live', 'holder', v_found.holder,
            'left', micros(v_found.renewed_at + interval '60 seconds') - micros(clock_timestamp()))::text;
    END IF;
    INSERT INTO sweeps (line, token, project) VALUES (v_line, v_found.token, v_project) ON CONFLICT DO NOTHING;
    UPDATE lines SET token = token + 1, holder = v_call->>'holder', request = v_call->>'request', renewed_at = clock_timestamp()
        WHERE id = v_line;
    RETURN (line_state(p_project, v_line) || '{"outcome": "taken"}')::text;
END $$;

CREATE FUNCTION lines_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
    v_call jsonb := p_call;
BEGIN
    RETURN (SELECT jsonb_build_object('lines', coalesce(jsonb_agg(jsonb_build_object('line', id, 'workspace', workspace,
            'plan', plan, 'token', token, 'seq', seq, 'head', head, 'holder', holder, 'renewed_at', utc(renewed_at),
            'live', coalesce(renewed_at + interval '60 seconds' > clock_timestamp(), false)) ORDER BY id DESC), '[]'))
        FROM lines WHERE project = v_project
            AND (v_call->>'workspace' IS NULL OR workspace = v_call->>'workspace')
            AND (v_call->>'plan' IS NULL OR plan = v_call->>'plan'))::text;
END $$;

CREATE FUNCTION checkpoint_json(c checkpoints, l lines) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('line', c.line, 'workspace', l.workspace, 'plan', l.plan, 'seq', c.seq, 'n', c.n, 'id', c.id,
        'record', c.record, 'whole', c.whole, 'pinned', c.pinned, 'fields', c.fields, 'published_at', safepoint.utc(c.published_at))
$$;

CREATE FUNCTION checkpoints_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
    v_call jsonb := p_call;
    v_limit bigint := v_call->>'limit';
BEGIN
    RETURN (SELECT jsonb_build_object('checkpoints', coalesce(jsonb_agg(row ORDER BY line DESC, seq DESC, n DESC), '[]')) FROM (
        SELECT c.line, c.seq, c.n, checkpoint_json(c, l) AS row
        FROM checkpoints c JOIN lines l ON l.id = c.line
        WHERE l.project = v_project
            AND (v_call->>'workspace' IS NULL OR l.workspace = v_call->>'workspace')
            AND (v_call->>'line' IS NULL OR l.id = v_call->>'line')
            AND (v_call->>'plan' IS NULL OR l.plan = v_call->>'plan')
            AND (c.whole OR NOT (v_call->>'only_whole')::boolean)
            AND (NOT (v_call->>'only_heads')::boolean OR (c.seq = l.seq AND c.id = l.head))
            AND (jsonb_typeof(v_call->'after') = 'null'
                OR (c.line, c.seq, c.n) < (v_call->'after'->>0, (v_call->'after'->>1)::bigint, (v_call->'after'->>2)::integer))
        ORDER BY c.line DESC, c.seq DESC, c.n DESC
        LIMIT CASE v_limit WHEN 0 THEN 1000 ELSE v_limit END) found)::text;
END $$;

CREATE FUNCTION checkpoint_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
    v_call jsonb := p_call;
BEGIN
    RETURN (SELECT jsonb_build_object('checkpoint', checkpoint_json(c, l) || jsonb_build_object('packs', pack_list(c.packs)))
        FROM checkpoints c JOIN lines l ON l.id = c.line
        WHERE c.id = v_call->>'id' AND c.project = v_project
        ORDER BY c.published_at DESC, c.line DESC LIMIT 1)::text;
END $$;

CREATE FUNCTION random_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
BEGIN
    RETURN (SELECT jsonb_build_object('checkpoint', checkpoint_json(c, l) || jsonb_build_object('packs', pack_list(c.packs)))
        FROM checkpoints c JOIN lines l ON l.id = c.line
        WHERE c.project = v_project ORDER BY random() LIMIT 1)::text;
END $$;
