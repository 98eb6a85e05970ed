-- The two functions that take builds out of a queue. They are functions because each is several statements that must
-- see what was committed while they waited for a lock, and still be one round trip (docs/decisions/0002).

-- Takes `p_taken` builds, just changed by the caller, out of a workspace's queue: sets its head to the oldest build still
-- pending, and its sums. The caller holds the workspace's row. (PL/pgSQL, since it keeps its plans; SQL functions don't.)
create function leave_queue(p_workspace uuid, p_head bigint, p_taken integer, p_running integer, p_reserved integer)
returns void language plpgsql as $$
declare
    v_number bigint;
    v_seconds integer;
    v_month date := month_of(clock_timestamp());
begin
    select b.number, b.timeout_seconds into v_number, v_seconds from builds b
    where b.workspace_id = p_workspace and b.status = 'pending' and b.number >= p_head
    order by b.number limit 1;
    update workspaces w
    set pending = w.pending - p_taken, running = w.running + p_running,
        reserved_seconds = w.reserved_seconds + p_reserved, head_number = v_number, head_seconds = v_seconds,
        charged_seconds = case when w.charged_month >= v_month then w.charged_seconds else 0 end,
        charged_month = greatest(w.charged_month, v_month)
    where w.id = p_workspace;
end $$;

-- Ends pending builds of one workspace: those named, or its oldest. Returns the ids of those that it ended; a build
-- that somebody else is just claiming is not among them.
create function end_pending(
    p_workspace uuid, p_builds uuid[], p_limit integer, p_status text, p_reason text, p_message text
) returns setof uuid language plpgsql as $$
declare
    v_head bigint;
    v_ids uuid[];
begin
    select head_number into v_head from workspaces where id = p_workspace for no key update;
    if v_head is null then
        return;
    end if;
    with due as (
        select b.id from builds b
        where b.workspace_id = p_workspace and b.status = 'pending' and b.number >= v_head
            and (p_builds is null or b.id = any (p_builds))
        order by b.number limit p_limit for update skip locked
    ), ended as (
        update builds b
        set status = p_status, end_reason = p_reason, error_message = p_message, ended_at = clock_timestamp(),
            charged_seconds = 0, duration_ms = 0, last_seq = 0, version = b.version + 1
        from due where b.id = due.id
        returning b.id)
    select array_agg(id) into v_ids from ended;
    if v_ids is null then
        return;
    end if;
    perform leave_queue(p_workspace, v_head, cardinality(v_ids), 0, 0);
    return query select unnest(v_ids);
end $$;

-- Takes the oldest build of the first eligible workspace for a token: the part of `claim_build` that decides. Its outcome is
-- one of those from `claimed` on, but for `repeat`, `ended` and `unauthorized`.
create function take_build(
    p_token text, p_claim uuid, p_lease_ms bigint, p_deadline_max integer, p_rules smallint,
    p_verified uuid[], p_skip uuid[], p_wait uuid,
    out outcome text, out build uuid, out workspace uuid
) language plpgsql as $$
declare
    v_id uuid;
    v_contended uuid;
    w workspaces%rowtype;
    b builds%rowtype;
    v_month date;
    v_charged integer;
    v_left integer;
    v_wanted integer;
    v_now timestamptz;
begin
    -- Waits at most once, and before anything else is locked, so that no two claims can wait for each other.
    if p_wait is not null then
        perform from workspaces c where c.id = p_wait for no key update;
    end if;
    for v_id in
        select c.id from workspaces c
        where c.eligible and c.id <> all (p_skip) order by c.head_number limit 64
    loop
        select * into w from workspaces c where c.id = v_id for no key update skip locked;
        if not found then
            v_contended := coalesce(v_contended, v_id);
            continue;
        end if;
        continue when not w.eligible;

        v_month := greatest(month_of(clock_timestamp()), w.charged_month);
        v_charged := case when w.charged_month = v_month then w.charged_seconds else 0 end;
        v_left := w.plan_seconds_per_month - v_charged;
        if v_left <= 0 then
            outcome := 'exhausted';
            workspace := w.id;
            return;
        end if;

        select * into b from builds c
        where c.workspace_id = w.id and c.status = 'pending' and c.number >= w.head_number
        order by c.number limit 1 for update skip locked;
        if not found then
            v_contended := coalesce(v_contended, v_id);
            continue;
        end if;
        v_wanted := least(b.timeout_seconds, w.plan_build_seconds_max, p_deadline_max, v_left);
        continue when v_left - w.reserved_seconds < v_wanted;
        if not b.id = any (p_verified) and (b.rules_version <> p_rules or not exists (
            select from build_specs s join pipelines p on p.id = s.pipeline_id where s.build_id = b.id))
        then
            outcome := 'unverified';
            build := b.id;
            workspace := w.id;
            return;
        end if;

        v_now := clock_timestamp();
        update builds c
        set status = 'running', claimed_by = p_token, claim_id = p_claim, started_at = v_now,
            max_duration_seconds = v_wanted, lease_expires_at = v_now + p_lease_ms * interval '1 ms',
            version = c.version + 1
        where c.id = b.id;
        perform leave_queue(w.id, w.head_number, 1, 1, v_wanted);
        outcome := 'claimed';
        build := b.id;
        workspace := w.id;
        return;
    end loop;
    if v_contended is not null then
        outcome := 'contended';
        workspace := v_contended;
        return;
    end if;
    outcome := 'none';
end $$;

-- Gives a worker the oldest build of the first eligible workspace. `outcome` is one of
--   claimed       the build is this worker's now
--   repeat        this claim_id took it before; its lease is renewed
--   ended         this claim_id took it before, and it has ended
--   unauthorized  no such worker token, or revoked
--   unverified    the workspace's oldest build was admitted under other rules, or its pipeline is gone: the caller
--                 decides, then either ends it or calls again with `p_verified`
--   exhausted     the workspace's month is spent: the caller ends its builds, or skips it
--   contended     others hold what could be taken: the caller calls again and waits for `workspace`
--   none          nothing to do
-- The grant is `rules::budget::reserve` once more, under the lock; a test holds the two equal.
create function claim_build(
    p_token text, p_digest bytea, p_claim uuid, p_lease_ms bigint, p_deadline_max integer, p_rules smallint,
    p_verified uuid[], p_skip uuid[], p_wait uuid,
    p_name text, p_version text, p_host text, p_isolation text[], p_labels text[],
    out outcome text, out build uuid, out workspace uuid,
    out max_seconds integer, out deadline_in_ms bigint, out spec jsonb, out sealed jsonb
) language plpgsql as $$
declare
    v_spec build_specs%rowtype;
begin
    perform from tokens where id = p_token and digest = p_digest and kind = 'worker' and revoked_at is null;
    if not found then
        outcome := 'unauthorized';
        return;
    end if;

    update builds
    set lease_expires_at = case when status = 'running'
        then clock_timestamp() + p_lease_ms * interval '1 ms' else lease_expires_at end
    where claimed_by = p_token and claim_id = p_claim
    returning id, workspace_id, case when status = 'running' then 'repeat' else 'ended' end
    into build, workspace, outcome;
    if not found then
        insert into workers (token_id, host_id, name, version, isolation, labels, seen_at)
        select p_token, p_host, p_name, p_version, p_isolation, p_labels, clock_timestamp()
        where not exists (
            select from workers k where k.token_id = p_token and k.host_id = p_host and k.name = p_name
                and k.seen_at > clock_timestamp() - interval '15 s')
        on conflict (token_id, host_id, name) do update
        set version = excluded.version, isolation = excluded.isolation, labels = excluded.labels, seen_at = excluded.seen_at;
        select t.outcome, t.build, t.workspace into outcome, build, workspace
        from take_build(p_token, p_claim, p_lease_ms, p_deadline_max, p_rules, p_verified, p_skip, p_wait) t;
    end if;
    if outcome not in ('claimed', 'repeat') then
        return;
    end if;

    -- The job is part of the answer, so that nothing which could fail comes after the commit.
    select b.max_duration_seconds, greatest(0, (extract(epoch from
            b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint)
    into max_seconds, deadline_in_ms from builds b where b.id = build;
    select * into v_spec from build_specs s where s.build_id = build;
    spec := to_jsonb(v_spec);
    if v_spec.secrets <> '{}' or v_spec.clone_secret is not null then
        select jsonb_agg(jsonb_build_object('name', k.name, 'key_id', k.key_id,
            'nonce', encode(k.nonce, 'hex'), 'ciphertext', encode(k.ciphertext, 'hex')))
        into sealed from secrets k
        where k.workspace_id = workspace and k.name = any (v_spec.secrets || v_spec.clone_secret);
    end if;
end $$;

-- How long a build ran, in milliseconds, for what ended it: as its worker says but at most what was seen, up to the
-- last expiry of its lease, or up to its deadline. (`rules::budget`)
create function run_time_ms(
    p_kind text, p_started timestamptz, p_lease_end timestamptz, p_max_seconds integer, p_reported_ms bigint, p_now timestamptz
) returns bigint language sql immutable parallel safe as $$
    select greatest(0, case p_kind
        when 'completed' then least(p_reported_ms, ceil(extract(epoch from p_now - p_started) * 1000)::bigint)
        when 'lost' then ceil(extract(epoch from p_lease_end - p_started) * 1000)::bigint
        else p_max_seconds * 1000::bigint end)
$$;
