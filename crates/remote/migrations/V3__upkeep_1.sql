-- Functions of protocol 1 for upkeep, rebuild, quota and members.

CREATE FUNCTION policy_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'read');
    v_call jsonb := p_call;
BEGIN
    IF v_call ? 'policy' THEN
        PERFORM need(p_project, 'upkeep');
        UPDATE projects SET policy = v_call->'policy' WHERE id = v_project;
    END IF;
    RETURN (SELECT jsonb_build_object('policy', policy) FROM projects WHERE id = v_project)::text;
END $$;

-- Deletes rows by age, at most 20,000 in one transaction. Never the newest of a line, nor a pinned one.
CREATE FUNCTION expire_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_policy jsonb := p_call::jsonb->'policy';
    v_last bigint := greatest((v_policy->>'keep_last')::bigint, 1);
    v_hourly interval := make_interval(days => (v_policy->>'hourly_days')::integer);
    v_daily interval := make_interval(days => (v_policy->>'daily_days')::integer);
    v_count bigint;
BEGIN
    WITH ranked AS (
        SELECT line, seq, n, pinned, clock_timestamp() - published_at AS age,
            row_number() OVER (PARTITION BY line ORDER BY seq DESC, n DESC) AS place,
            row_number() OVER (PARTITION BY line, date_trunc('hour', published_at) ORDER BY seq DESC, n DESC) AS in_hour,
            row_number() OVER (PARTITION BY line, date_trunc('day', published_at) ORDER BY seq DESC, n DESC) AS in_day
        FROM checkpoints WHERE project = v_project),
    doomed AS (
        SELECT line, seq, n FROM ranked
        WHERE NOT pinned AND place > v_last
            AND NOT (in_hour = 1 AND age < v_hourly) AND NOT (in_day = 1 AND age < v_daily)
        LIMIT 20000)
    DELETE FROM checkpoints c USING doomed d WHERE c.line = d.line AND c.seq = d.seq AND c.n = d.n;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN jsonb_build_object('deleted', v_count)::text;
END $$;

CREATE FUNCTION delete_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_count bigint;
BEGIN
    DELETE FROM checkpoints c USING lines l
        WHERE l.id = c.line AND c.project = v_project
            AND c.id IN (SELECT jsonb_array_elements_text(p_call::jsonb->'ids'))
            AND NOT (c.seq = l.seq AND c.id = l.head);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN jsonb_build_object('deleted', v_count)::text;
END $$;

-- Packs that no row lists, and the lines at that moment. Without a lock: this may take long.
CREATE FUNCTION candidates_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
BEGIN
    -- STABLE: both parts see one snapshot.
    RETURN jsonb_build_object(
        'packs', (SELECT coalesce(jsonb_agg(p.id), '[]') FROM packs p
            WHERE p.project = v_project AND p.state = 'live' AND p.id NOT IN (
                SELECT DISTINCT unnest(c.packs) FROM checkpoints c WHERE c.project = v_project)),
        'lines', (SELECT coalesce(jsonb_object_agg(id, seq), '{}') FROM lines WHERE project = v_project))::text;
END $$;

-- Under the exclusive lock, only what was published since is looked at.
CREATE FUNCTION condemn_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_call jsonb := p_call;
    v_count bigint;
BEGIN
    PERFORM make_durable();
    PERFORM pg_advisory_xact_lock(23294, v_project);
    WITH candidates AS (SELECT id::bigint FROM jsonb_array_elements_text(v_call->'packs') k (id)),
    seen AS (SELECT key AS line, value::bigint AS seq FROM jsonb_each_text(v_call->'lines')),
    since AS (
        SELECT DISTINCT unnest(c.packs) AS id
        FROM lines l LEFT JOIN seen s ON s.line = l.id
        JOIN checkpoints c ON c.line = l.id AND c.seq > coalesce(s.seq, 0)
        WHERE l.project = v_project AND l.seq > coalesce(s.seq, 0))
    UPDATE packs SET state = 'condemned', condemned_at = clock_timestamp()
        WHERE project = v_project AND state = 'live' AND id IN (SELECT id FROM candidates) AND id NOT IN (SELECT id FROM since);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN jsonb_build_object('condemned', v_count)::text;
END $$;

-- After a purge: without grace, and only if no row lists any of them.
CREATE FUNCTION condemn_now_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_ids bigint[];
    v_listed jsonb;
BEGIN
    PERFORM make_durable();
    PERFORM pg_advisory_xact_lock(23294, v_project);
    SELECT array_agg(id) INTO v_ids FROM packs
        WHERE project = v_project AND name IN (SELECT jsonb_array_elements_text(p_call::jsonb->'packs'));
    SELECT jsonb_agg(name) INTO v_listed FROM packs WHERE id IN (
        SELECT DISTINCT u.id FROM checkpoints c, unnest(c.packs) u (id)
        WHERE c.project = v_project AND c.packs && v_ids AND u.id = ANY (v_ids));
    IF v_listed IS NOT NULL THEN
        RETURN jsonb_build_object('outcome', 'listed', 'packs', v_listed)::text;
    END IF;
    UPDATE packs SET state = 'condemned', condemned_at = '-infinity' WHERE id = ANY (v_ids) AND state <> 'gone';
    RETURN '{"outcome": "condemned"}';
END $$;

CREATE FUNCTION due_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_call jsonb := p_call;
    v_before timestamptz := clock_timestamp() - make_interval(secs => (v_call->>'grace')::double precision);
BEGIN
    DELETE FROM packs WHERE project = v_project AND state = 'gone' AND condemned_at < v_before;
    RETURN jsonb_build_object('packs', (SELECT coalesce(jsonb_agg(name), '[]') FROM (
        SELECT name FROM packs WHERE project = v_project AND state = 'condemned' AND condemned_at <= v_before
        ORDER BY condemned_at LIMIT (v_call->>'limit')::bigint) due))::text;
END $$;

CREATE FUNCTION note_gone_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
BEGIN
    UPDATE packs SET state = 'gone', condemned_at = clock_timestamp() WHERE project = v_project AND state = 'condemned'
        AND name IN (SELECT jsonb_array_elements_text(p_call::jsonb->'packs'));
    RETURN '{}';
END $$;

-- Raises the token of silent lines, and returns the tokens under which uploads may lie.
CREATE FUNCTION superseded_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_silent interval := make_interval(secs => (p_call::jsonb->>'silent')::double precision);
BEGIN
    PERFORM make_durable();
    -- A line that its writer released is silent from then on, too; one that never changed since is done.
    WITH silent AS (
        UPDATE lines SET token = token + 1, holder = NULL, renewed_at = NULL, request = 'silent'
            WHERE project = v_project AND request <> 'silent'
                AND coalesce(renewed_at, (SELECT max(c.published_at) FROM checkpoints c WHERE c.line = lines.id), began_at)
                    < clock_timestamp() - v_silent
            RETURNING id, token - 1 AS token)
    INSERT INTO sweeps (line, token, project) SELECT id, token, v_project FROM silent ON CONFLICT DO NOTHING;
    RETURN jsonb_build_object('fences', (SELECT coalesce(jsonb_agg(jsonb_build_object('line', line, 'token', token)), '[]')
        FROM sweeps WHERE project = v_project))::text;
END $$;

-- Condemns uploads that no row names. The token is done when no upload can be under way any more.
CREATE FUNCTION orphans_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_call jsonb := p_call;
    v_line text := v_call->'fence'->>'line';
    v_token bigint := v_call->'fence'->>'token';
    v_count bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(23294, v_project);
    IF NOT EXISTS (SELECT FROM lines WHERE id = v_line AND project = v_project AND token > v_token) THEN
        RAISE EXCEPTION 'the token is not superseded';
    END IF;
    INSERT INTO packs (project, line, name, bytes, objects, state, condemned_at)
        SELECT v_project, v_line, k->>'name', (k->>'bytes')::bigint, 0, 'condemned', clock_timestamp()
        FROM jsonb_array_elements(v_call->'found') k
        WHERE split_part(k->>'name', '/', 1) = p_project AND split_part(k->>'name', '/', 2) = v_line
            AND split_part(k->>'name', '/', 3) = v_token::text
        ON CONFLICT (name) DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM sweeps WHERE line = v_line AND token = v_token
        AND superseded_at < clock_timestamp() - make_interval(secs => (v_call->>'late')::double precision);
    RETURN jsonb_build_object('orphans', v_count)::text;
END $$;

CREATE FUNCTION measure_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_bytes bigint;
BEGIN
    SELECT coalesce(sum(bytes), 0) INTO v_bytes FROM packs WHERE project = v_project AND state = 'live';
    UPDATE projects SET over_quota = coalesce(v_bytes > (policy->>'quota_bytes')::bigint, false)
        WHERE id = v_project AND over_quota IS DISTINCT FROM coalesce(v_bytes > (policy->>'quota_bytes')::bigint, false);
    RETURN jsonb_build_object('bytes', v_bytes)::text;
END $$;

CREATE FUNCTION live_packs_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
BEGIN
    RETURN jsonb_build_object('packs', (SELECT coalesce(jsonb_agg(name), '[]') FROM packs
        WHERE project = v_project AND state <> 'gone'))::text;
END $$;

-- A new history: every writer of the old one is fenced, as all tokens rise into the new incarnation.
CREATE FUNCTION begin_rebuild_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_incarnation bigint;
BEGIN
    PERFORM make_durable();
    PERFORM pg_advisory_xact_lock(23294, v_project);
    UPDATE meta SET incarnation = greatest(incarnation, (p_call::jsonb->>'after')::bigint) + 1
        RETURNING incarnation INTO v_incarnation;
    UPDATE lines SET token = (v_incarnation - 1) * 4294967296 + (token % 4294967296) + 1, holder = NULL, renewed_at = NULL,
        request = 'rebuild' WHERE project = v_project;
    RETURN jsonb_build_object('incarnation', v_incarnation)::text;
END $$;

-- Restores the rows of pushes, oldest first in each line. Rows that exist stay.
CREATE FUNCTION restore_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'upkeep');
    v_call jsonb := p_call;
    v_incarnation bigint := v_call->>'incarnation';
    v_push jsonb;
    v_packs bigint[];
    v_count bigint;
    v_all bigint := 0;
    v_conflicts jsonb := '[]';
BEGIN
    PERFORM make_durable();
    PERFORM pg_advisory_xact_lock(23294, v_project);
    FOR v_push IN SELECT jsonb_array_elements(v_call->'pushes') LOOP
        -- A history that goes on from an older copy of this database has its own push in this place.
        IF EXISTS (SELECT FROM checkpoints c WHERE c.line = v_push->>'line' AND c.seq = (v_push->>'seq')::bigint AND c.n = 0
                AND c.id <> v_push->'checkpoints'->0->>'id')
            -- What follows it belongs to the other history, too.
            OR EXISTS (SELECT FROM jsonb_array_elements(v_conflicts) k WHERE k->>0 = v_push->>'line') THEN
            v_conflicts := v_conflicts || jsonb_build_array(jsonb_build_array(v_push->>'line', (v_push->>'seq')::bigint));
            CONTINUE;
        END IF;
        INSERT INTO packs (project, line, name, bytes, objects)
            SELECT v_project, split_part(k->>'name', '/', 2), k->>'name', (k->>'bytes')::bigint, (k->>'objects')::bigint
            FROM jsonb_array_elements(v_push->'packs') k
            -- Uploads whose rows were lost looked like orphans.
            ON CONFLICT (name) DO UPDATE SET state = 'live', condemned_at = NULL, objects = excluded.objects
                WHERE packs.state = 'condemned' AND packs.condemned_at > '-infinity';
        SELECT array_agg(p.id ORDER BY k.at) INTO v_packs
            FROM jsonb_array_elements(v_push->'packs') WITH ORDINALITY k (pack, at)
            JOIN packs p ON p.name = k.pack->>'name' AND p.project = v_project AND p.state = 'live';
        IF cardinality(v_packs) IS DISTINCT FROM jsonb_array_length(v_push->'packs') THEN
            CONTINUE;
        END IF;
        INSERT INTO lines (id, project, workspace, plan, token, request, chain)
            VALUES (v_push->>'line', v_project, v_push->>'workspace', v_push->>'plan',
                (v_incarnation - 1) * 4294967296 + ((v_push->>'token')::bigint % 4294967296) + 1, 'rebuild', repeat('0', 64))
            ON CONFLICT (id) DO NOTHING;
        UPDATE lines SET seq = (v_push->>'seq')::bigint, chain = v_push->>'chain',
                token = greatest(token, (v_incarnation - 1) * 4294967296 + ((v_push->>'token')::bigint % 4294967296) + 1),
                head = coalesce(v_push->'checkpoints'->-1->>'id', head)
            WHERE id = v_push->>'line' AND project = v_project AND seq < (v_push->>'seq')::bigint;
        INSERT INTO checkpoints (line, seq, n, project, id, record, packs, whole, pinned, fields)
            SELECT v_push->>'line', (v_push->>'seq')::bigint, c.at - 1, v_project, c.row->>'id', c.row->>'record', v_packs,
                (v_push->>'whole')::boolean, (c.row->>'pinned')::boolean, c.row->'fields'
            FROM jsonb_array_elements(v_push->'checkpoints') WITH ORDINALITY c (row, at)
            ON CONFLICT (line, seq, n) DO NOTHING;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_all := v_all + v_count;
        -- All packs of a purged line may be gone; its replaced checkpoints are not.
        INSERT INTO lines (id, project, workspace, token, seq, request, chain)
            SELECT r->>'line', v_project, v_push->>'workspace', (v_incarnation - 1) * 4294967296 + 1, max((r->>'seq')::bigint),
                'rebuild', repeat('0', 64)
            FROM jsonb_array_elements(v_push->'replaced') r GROUP BY r->>'line'
            ON CONFLICT (id) DO NOTHING;
        INSERT INTO checkpoints (line, seq, n, project, id, record, packs, whole, pinned, fields)
            SELECT r->>'line', (r->>'seq')::bigint, (r->>'n')::integer, v_project, r->'row'->>'id', r->'row'->>'record', v_packs,
                false, (r->'row'->>'pinned')::boolean, r->'row'->'fields'
            FROM jsonb_array_elements(v_push->'replaced') r JOIN lines l ON l.id = r->>'line' AND l.project = v_project
            ON CONFLICT (line, seq, n) DO UPDATE SET record = excluded.record, packs = excluded.packs, whole = false,
                fields = excluded.fields;
    END LOOP;
    -- Tokens that uploads were found under are superseded.
    INSERT INTO sweeps (line, token, project)
        SELECT DISTINCT p->>'line', (p->>'token')::bigint, v_project FROM jsonb_array_elements(v_call->'pushes') p
        JOIN lines l ON l.id = p->>'line'
        ON CONFLICT DO NOTHING;
    RETURN jsonb_build_object('checkpoints', v_all, 'conflicts', v_conflicts)::text;
END $$;

CREATE FUNCTION member_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_project integer := need(p_project, 'admin');
    v_call jsonb := p_call;
BEGIN
    INSERT INTO members (project, role, may, line)
        VALUES (v_project, (v_call->>'role')::name, ARRAY(SELECT jsonb_array_elements_text(v_call->'rights')), v_call->>'line')
        ON CONFLICT (project, role) DO UPDATE SET may = excluded.may, line = excluded.line;
    RETURN '{}';
END $$;

-- Creates a project. Only the owner of the schema may call it: the session's role gets all rights.
CREATE FUNCTION create_project_1(p_project text, p_call text) RETURNS text
LANGUAGE plpgsql SET search_path = safepoint, pg_temp AS $$
DECLARE
    v_id integer;
BEGIN
    INSERT INTO projects (name) VALUES (p_project) ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
    IF v_id IS NOT NULL THEN
        INSERT INTO members (project, role, may) VALUES (v_id, session_user, '{read,publish,takeover,upkeep,admin}');
    END IF;
    RETURN '{}';
END $$;
REVOKE ALL ON FUNCTION create_project_1 FROM PUBLIC;

-- Reads and writes of the functions are limited to projects of the session's role a second time, by the rows.
ALTER TABLE lines ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs ENABLE ROW LEVEL SECURITY;
ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeps ENABLE ROW LEVEL SECURITY;
ALTER TABLE lines FORCE ROW LEVEL SECURITY;
ALTER TABLE packs FORCE ROW LEVEL SECURITY;
ALTER TABLE checkpoints FORCE ROW LEVEL SECURITY;
ALTER TABLE sweeps FORCE ROW LEVEL SECURITY;
CREATE POLICY of_members ON lines USING (project = ANY ((SELECT mine('read'))::integer[]));
CREATE POLICY of_members ON packs USING (project = ANY ((SELECT mine('read'))::integer[]));
CREATE POLICY of_members ON checkpoints USING (project = ANY ((SELECT mine('read'))::integer[]));
CREATE POLICY of_members ON sweeps USING (project = ANY ((SELECT mine('read'))::integer[]));

-- Functions check their caller; names alone give nothing.
GRANT USAGE ON SCHEMA safepoint TO PUBLIC;
