-- Claims by queue, and claims and ends by batch: one call serves one request, or all that wait in a process that combines them.
--
-- Each is planned once a connection, perhaps while its tables are still empty, so a plan must not hang on their size: the
-- settings leave it indexes and nested loops. (They hold for what a function calls as well.) Where calls of several tenants are served
-- together, nobody waits long for a row that one of them can't have: the caller then serves each by itself.

drop function claim_build(text, bytea, uuid, bigint, integer, smallint, uuid[], uuid[], uuid, text, text, text, text[], text[]);
drop function take_build(text, uuid, bigint, integer, smallint, uuid[], uuid[], uuid);
drop function end_pending(uuid, uuid[], integer, text, text, text);
drop function leave_queue(uuid, bigint, integer, integer, integer);

-- Takes builds that the caller has just changed out of their queues: sets the queues' heads to the oldest builds still
-- pending, and the workspaces' sums. The caller holds the workspaces' rows.
create function leave_queues(p_builds uuid[]) returns void language plpgsql as $$
declare
    v_month date := month_of(clock_timestamp());
begin
    with gone as materialized (
        select b.workspace_id, b.class_id, count(*) as builds, count(*) filter (where b.status = 'running') as running,
            coalesce(sum(b.max_duration_seconds) filter (where b.status = 'running'), 0) as reserved
        from builds b where b.id = any (p_builds) group by b.workspace_id, b.class_id
    ), moved as (
        update queues q
        set (head_number, head_seconds) = (
                select b.number, b.timeout_seconds from builds b
                where b.workspace_id = q.workspace_id and b.class_id = q.class_id and b.status = 'pending'
                    and b.number >= q.head_number
                order by b.number limit 1),
            pending = q.pending - g.builds, open = q.open and q.pending > g.builds,
            running = case when (select fair from board where only_row) then q.running + g.running else 0 end, changed_at = clock_timestamp()
        from gone g where q.workspace_id = g.workspace_id and q.class_id = g.class_id)
    update workspaces w
    set pending = w.pending - g.builds, running = w.running + g.running, reserved_seconds = w.reserved_seconds + g.reserved,
        charged_seconds = case when w.charged_month >= v_month then w.charged_seconds else 0 end,
        charged_month = greatest(w.charged_month, v_month)
    from (
        select workspace_id, sum(builds) as builds, sum(running) as running, sum(reserved) as reserved
        from gone group by workspace_id) g
    where w.id = g.workspace_id;
end $$;

-- Ends pending builds of one workspace: those named, or its oldest. Returns the ids of those that it ended; a build
-- that somebody else is just claiming is not among them.
create function end_pending(
    p_workspace uuid, p_builds uuid[], p_limit integer, p_status text, p_reason text, p_message text
) returns setof uuid language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_ids uuid[];
begin
    perform from workspaces where id = p_workspace for no key update;
    with due as (
        select b.id from queues q cross join lateral (
            select c.id, c.number from builds c
            where c.workspace_id = q.workspace_id and c.class_id = q.class_id and c.status = 'pending'
                and c.number >= q.head_number and (p_builds is null or c.id = any (p_builds))
            order by c.number limit p_limit for update skip locked) b
        where q.workspace_id = p_workspace and q.pending > 0
        order by b.number limit p_limit
    ), ended as (
        update builds b
        set status = p_status, end_reason = p_reason, error_message = p_message, ended_at = clock_timestamp(),
            charged_seconds = 0, duration_ms = 0, last_seq = 0, version = b.version + 1
        from due where b.id = due.id
        returning b.id)
    select array_agg(id) into v_ids from ended;
    if v_ids is not null then
        perform leave_queues(v_ids);
        return query select unnest(v_ids);
    end if;
end $$;

-- Starts up to as many builds as there are claims, of the open queues among `p_classes`, in the order of the board. Returns
-- the builds, those that must be checked before they may start, and a workspace that others hold. Waits for nothing.
create function start_builds(
    p_token text, p_claims uuid[], p_classes integer[], p_only uuid[], p_skip uuid[], p_verified uuid[],
    p_lease_ms bigint, p_deadline_max integer, p_rules smallint, p_stale_ms bigint,
    out started uuid[], out unverified uuid[], out held uuid
) language plpgsql as $$
declare
    v_limit integer := cardinality(p_claims);
    v_look integer := cardinality(p_claims) + 16;
    v_locked uuid[];
    v_each integer;
    v_fair boolean;
    v_now timestamptz;
    v_month date;
begin
    with next as materialized (
        select q.workspace_id, q.running, q.head_number
        from unnest(p_classes) c (id) cross join lateral (
            select n.workspace_id, n.running, n.head_number from queues n
            where n.class_id = c.id and n.open and n.workspace_id <> all (p_skip)
                and (p_only is null or n.workspace_id = any (p_only))
            order by n.running, n.head_number limit v_look) q
        order by q.running, q.head_number limit v_look
    ), locked as materialized (
        select w.id from next n join workspaces w on w.id = n.workspace_id
        order by n.running, n.head_number limit v_limit for no key update of w skip locked)
    select (select array_agg(id) from locked),
        (select n.workspace_id from next n where n.workspace_id not in (select id from locked) limit 1),
        (select fair from board where only_row)
    into v_locked, held, v_fair;
    if v_locked is null then
        return;
    end if;

    v_each := ceil(v_limit::numeric / cardinality(v_locked));
    v_now := clock_timestamp();
    v_month := month_of(v_now);
    with waiting as (
        select w.id as workspace, w.running, b.id, b.number, p.running_max - w.running as slots, v.verified,
            p.seconds_per_month - m.charged - w.reserved_seconds as free_seconds,
            least(b.timeout_seconds, p.build_seconds_max, p_deadline_max, p.seconds_per_month - m.charged) as seconds
        from unnest(v_locked) l (id)
        join workspaces w on w.id = l.id join plans p on p.workspace_id = l.id join queues q on q.workspace_id = l.id
        cross join lateral (select case when w.charged_month >= v_month then w.charged_seconds else 0 end as charged) m
        cross join lateral (
            select c.id, c.number, c.timeout_seconds, c.rules_version from builds c
            where c.workspace_id = q.workspace_id and c.class_id = q.class_id and c.status = 'pending'
                and c.number >= q.head_number
            order by c.number limit v_each for update skip locked) b
        cross join lateral (
            select b.id = any (p_verified) or (b.rules_version = p_rules and exists (
                select from pipelines i where i.id = s.pipeline_id offset 0)) as verified
            from build_specs s where s.build_id = b.id offset 0) v
        where q.open and q.class_id = any (p_classes)
            and not p.lapsed and plan_is_fresh(p.fetched_at, p_stale_ms, v_now)
    ), fitting as (
        select n.id, n.seconds, n.verified, n.all_verified,
            row_number() over (order by case when v_fair then n.running + n.place else 0 end, n.number) as turn
        from (
            select n.*, row_number() over each as place, sum(n.seconds) over each as reserved,
                bool_and(n.verified) over each as all_verified
            from waiting n window each as (partition by n.workspace order by n.number)) n
        where n.place <= n.slots and n.reserved <= n.free_seconds
    ), taken as (
        update builds b
        set status = 'running', claimed_by = p_token, claim_id = p_claims[f.turn], started_at = v_now,
            max_duration_seconds = f.seconds, lease_expires_at = v_now + p_lease_ms * interval '1 ms',
            version = b.version + 1
        from fitting f where b.id = f.id and f.turn <= v_limit and f.all_verified
        returning b.id)
    select (select array_agg(id) from taken), (select array_agg(id) from fitting where turn <= v_limit and not verified)
    into started, unverified;
    if started is not null then
        perform leave_queues(started);
    end if;
end $$;

-- Serves claims of one token, whose workers (each named once) have the same back ends and labels. A row for each claim, and one for each build
-- that must be checked before it may start. `outcome` is one of
--   claimed       the build is this claim's now
--   repeat        this claim took it before; its lease is renewed
--   ended         this claim took it before, and it has ended
--   unauthorized  no such worker token, or revoked
--   unverified    (no claim) the build was admitted under other rules, or its pipeline is gone: the caller decides, then
--                 either ends it or calls again with `p_verified`
--   contended     others hold what could be taken: the caller calls again and waits for `workspace`
--   none          nothing to do
create function claim_builds(
    p_token text, p_digest bytea, p_claims uuid[], p_names text[], p_versions text[], p_hosts text[],
    p_isolation text[], p_labels text[], p_lease_ms bigint, p_deadline_max integer, p_rules smallint, p_stale_ms bigint,
    p_verified uuid[], p_skip uuid[], p_wait uuid
) returns table (
    claim uuid, outcome text, build uuid, workspace uuid, max_seconds integer, deadline_in_ms bigint, spec jsonb, sealed jsonb
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_only uuid[];
    v_known uuid[];
    v_classes integer[];
    v_open uuid[] := p_claims;
    v_mine uuid[] := '{}';
    s record;
begin
    -- Waits at most once, and before anything else is locked, so that no two claims can wait for each other.
    if p_wait is not null then
        perform from workspaces c where c.id = p_wait for no key update;
    end if;
    select t.workspaces, (
            select array_agg(a.id) from unnest(p_claims) a (id)
            where exists (select from builds b where b.claimed_by = p_token and b.claim_id = a.id offset 0)), (
            select case when count(*) = cardinality(p_hosts) then min(k.classes) end
            from unnest(p_hosts, p_names) a (host, name)
            join workers k on k.token_id = p_token and k.host_id = a.host and k.name = a.name
            where k.seen_at > clock_timestamp() - interval '15 s' and k.labels = p_labels and k.isolation = p_isolation)
    into v_only, v_known, v_classes
    from tokens t where t.id = p_token and t.digest = p_digest and t.kind = 'worker' and t.revoked_at is null;
    if not found then
        return query select c, 'unauthorized', null::uuid, null::uuid, null::integer, null::bigint, null::jsonb, null::jsonb
            from unnest(p_claims) c;
        return;
    end if;
    if v_known is not null then
        with renewed as (
            update builds b set lease_expires_at = clock_timestamp() + p_lease_ms * interval '1 ms'
            where b.claimed_by = p_token and b.claim_id = any (v_known) and b.status = 'running' returning b.id)
        select array_agg(b.id) into v_mine from builds b where b.claimed_by = p_token and b.claim_id = any (v_known);
        v_open := array(select c from unnest(p_claims) c where c <> all (v_known));
    end if;
    if v_classes is null then
        v_classes := classes_covered(p_isolation, p_labels);
        insert into workers (token_id, host_id, name, version, isolation, labels, classes, seen_at)
        select p_token, a.host, a.name, a.version, p_isolation, p_labels, v_classes, clock_timestamp()
        from unnest(p_hosts, p_names, p_versions) a (host, name, version) order by a.host, a.name
        on conflict (token_id, host_id, name) do update
        set version = excluded.version, isolation = excluded.isolation, labels = excluded.labels,
            classes = excluded.classes, seen_at = excluded.seen_at;
    end if;

    while cardinality(v_open) > 0 loop
        s := start_builds(p_token, v_open, v_classes, v_only, p_skip, p_verified,
            p_lease_ms, p_deadline_max, p_rules, p_stale_ms);
        if s.unverified is not null then
            return query select null::uuid, 'unverified', b.id, b.workspace_id, null::integer, null::bigint, null::jsonb, null::jsonb
                from builds b where b.id = any (s.unverified);
        end if;
        v_mine := v_mine || s.started;
        v_open := v_open[coalesce(cardinality(s.started), 0) + 1 :];
        exit when s.started is null or s.unverified is not null;
    end loop;
    if cardinality(v_open) > 0 then
        return query select c, case when s.held is null then 'none' else 'contended' end, null::uuid, s.held,
            null::integer, null::bigint, null::jsonb, null::jsonb from unnest(v_open) c;
    end if;

    -- The jobs are part of the answer, so that nothing which could fail comes after the commit.
    return query
        select b.claim_id, case when b.status <> 'running' then 'ended' when b.claim_id = any (v_known) then 'repeat'
                else 'claimed' end,
            b.id, b.workspace_id, b.max_duration_seconds, greatest(0, (extract(epoch from
                b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint),
            to_jsonb(p), case when p.secrets <> '{}' or p.clone_secret is not null or p.registry_secrets <> '{}' then (
                select jsonb_agg(jsonb_build_object('name', k.name, 'key_id', k.key_id,
                    'nonce', encode(k.nonce, 'hex'), 'ciphertext', encode(k.ciphertext, 'hex')))
                from secrets k where k.workspace_id = b.workspace_id and (k.name = any (p.secrets || p.clone_secret)
                    or k.name in (select r.value from jsonb_each_text(p.registry_secrets) r))) end
        from builds b join build_specs p on p.build_id = b.id where b.id = any (v_mine);
end $$;

-- Ends running builds, frees their reservations, charges them and keeps their ledger rows; those that it ended. `p_kind` is
--   completed  each one's worker says so: it holds the build, its logs are here or given up, and nobody is said to have
--              cancelled who did not ask
--   lost       the lease lapsed longer ago than the grace
--   overdue    the deadline passed longer ago than the grace
-- Builds are locked by their ids, then workspaces by theirs, so that no two calls wait for each other. The clock is read once the
-- builds are locked.
create function end_builds(
    p_kind text, p_grace_ms bigint, p_builds uuid[], p_statuses text[], p_reasons text[], p_messages text[],
    p_tokens text[], p_digests bytea[], p_ran_ms bigint[], p_last_seqs bigint[], p_logs_lost boolean[],
    p_commits text[], p_steps jsonb[]
) returns table (build uuid, duration_ms bigint, charged_seconds integer)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_month date;
begin
    perform from builds b where b.id = any (p_builds) order by b.id for no key update;
    v_now := clock_timestamp();
    v_month := month_of(v_now);
    return query with ended as (
        update builds b
        set status = s.status, end_reason = case s.status when 'cancelled' then b.cancel_reason else s.reason end,
            error_message = s.message, completed = p_kind = 'completed', ended_at = v_now, phase = null,
            last_output_age_ms = null, version = b.version + 1, last_seq = s.last_seq, commit_sha = s.commit_sha,
            step_results = s.steps, duration_ms = r.ran_ms,
            charged_seconds = least(b.max_duration_seconds, (r.ran_ms + 999) / 1000)
        from unnest(p_builds, p_statuses, p_reasons, p_messages, p_tokens, p_digests, p_ran_ms, p_last_seqs, p_logs_lost,
                p_commits, p_steps) s (
                build, status, reason, message, token, digest, ran_ms, last_seq, logs_lost, commit_sha, steps)
            join builds c on c.id = s.build join log_heads h on h.build_id = s.build
            cross join lateral (select run_time_ms(p_kind, c.started_at, c.lease_expires_at, c.max_duration_seconds,
                s.ran_ms, v_now) as ran_ms offset 0) r
        -- Running, said so that no plan walks the index of all that run.
        where b.id = c.id and b.started_at is not null and b.ended_at is null
            and case p_kind
                when 'completed' then
                    b.claimed_by = s.token and (s.status <> 'cancelled' or b.cancel_requested_at is not null)
                    and (h.next_seq > s.last_seq or s.logs_lost)
                    and exists (select from tokens t
                        where t.id = s.token and t.digest = s.digest and t.kind = 'worker' and t.revoked_at is null)
                when 'lost' then b.lease_expires_at < v_now - p_grace_ms * interval '1 ms'
                else b.started_at + b.max_duration_seconds * interval '1 s' < v_now - p_grace_ms * interval '1 ms' end
        returning b.id, b.workspace_id, b.max_duration_seconds as reserved, b.charged_seconds, b.duration_ms
    ), charged as (
        insert into charges (build_id, workspace_id, month, seconds, charged_at)
        select e.id, e.workspace_id, v_month, e.charged_seconds, v_now from ended e
    ), locked as materialized (
        select w.id, f.builds, f.reserved, f.seconds
        from (select e.workspace_id, count(*) as builds, sum(e.reserved) as reserved, sum(e.charged_seconds) as seconds
            from ended e group by e.workspace_id) f
        join workspaces w on w.id = f.workspace_id order by w.id for no key update of w
    ), settled as (
        update workspaces w
        set running = w.running - l.builds, reserved_seconds = w.reserved_seconds - l.reserved,
            charged_seconds = case when w.charged_month = v_month then w.charged_seconds + l.seconds
                when w.charged_month > v_month then w.charged_seconds else l.seconds end,
            charged_month = greatest(w.charged_month, v_month)
        from locked l where w.id = l.id
    )
    select e.id, e.duration_ms, e.charged_seconds from ended e;
end $$;
