-- Claims and ends that cost less: fewer statements and plan nodes for one, fewer visits of a row for many, and checks that are a
-- call each (docs/decisions/0010, docs/performance.md).

drop function claim_builds(text, bytea, uuid[], text[], text[], text[], text[], text[], bigint, integer, smallint, bigint, uuid[], uuid[], uuid);
drop function start_builds(text, uuid[], integer[], uuid[], uuid[], uuid[], bigint, integer, smallint, bigint);
drop function end_builds(text, bigint, uuid[], text[], text[], text[], text[], bytea[], bigint[], bigint[], boolean[], text[], jsonb[]);
drop trigger workspaces_refresh_queues on workspaces;
drop trigger plans_touch_workspaces on plans;
drop trigger builds_final_is_final on builds;

-- What only the claim reads is sent as it is stored.
alter table build_specs alter column steps type json using steps::json, alter column env type json using env::json;

-- The sums are of a type that checks them. The plan in effect stands here as well as in `plans`, so that a claim decides on the
-- row that it has locked; null where it can't be read. `fair` is the board's. `has_closed`: a queue in which builds wait may be closed, so
-- that an end may open it. `queues_set` is raised by whoever has set the workspace's queues already, so that the trigger does not.
create domain workspace_sum as integer constraint workspaces_sums_are_not_negative check (value >= 0);
alter table workspaces drop constraint workspaces_sums_are_not_negative, drop constraint workspaces_reserve_only_for_running,
    alter column charged_seconds type workspace_sum, alter column reserved_seconds type workspace_sum,
    alter column running type workspace_sum, alter column pending type workspace_sum,
    add column plan_seconds_per_month integer, add column plan_build_seconds_max integer, add column plan_running_max integer,
    add column plan_fetched_at timestamptz, add column fair boolean not null default false,
    add column has_closed boolean not null default true, add column queues_set bigint not null default 0;
update workspaces w
set plan_seconds_per_month = p.seconds_per_month, plan_build_seconds_max = p.build_seconds_max,
    plan_running_max = p.running_max, plan_fetched_at = p.fetched_at
from plans p where p.workspace_id = w.id and not p.lapsed;
update workspaces set fair = true where (select fair from board);

alter domain month drop constraint workspaces_month_is_a_first;
alter domain month add constraint workspaces_month_is_a_first check (date_part('day', value::timestamp) = 1);

create domain charge as integer constraint charges_are_not_negative check (value >= 0);
alter table charges drop constraint charges_are_not_negative, alter column seconds type charge;

-- What a row must be is a call that is given the row: the text of such a check is read quickest. It asks what is so for a row of that
-- status, and only where that is not so it looks for what is wrong, and names it.
alter table builds drop constraint builds_hold;
drop function build_holds(uuid, text, integer, integer, text, uuid, timestamptz, integer, timestamptz, timestamptz, text, timestamptz,
    boolean, integer, text);

-- The name of what does not hold of a build; null: all does. Where a condition is unknown, it holds.
create function build_breaks(p builds) returns text language sql immutable parallel safe as $$
    select case
        when p.status = 'pending' and num_nonnulls(
            p.claimed_by, p.claim_id, p.started_at, p.lease_expires_at, p.ended_at) > 0 then 'builds_pending_is_unclaimed'
        when p.status = 'pending' and p.class_id is null then 'builds_pending_has_a_class'
        when p.status = 'running' and (p.ended_at is not null or num_nulls(
            p.claimed_by, p.claim_id, p.started_at, p.lease_expires_at, p.max_duration_seconds) > 0)
            then 'builds_running_is_leased'
        when num_nulls(p.claimed_by, p.claim_id, p.started_at, p.max_duration_seconds) not in (0, 4)
            then 'builds_started_has_a_claim'
        when (p.status in ('pending', 'running')) <> (p.ended_at is null)
            or (p.ended_at is null) <> (p.charged_seconds is null) then 'builds_final_has_an_end'
        when case p.status
            when 'pending' then p.end_reason is not null
            when 'running' then p.end_reason is not null
            when 'success' then p.end_reason is not null or p.started_at is null
            when 'timed_out' then p.end_reason is distinct from 'deadline' or p.started_at is null
            when 'cancelled' then p.end_reason is null or p.end_reason not in ('user', 'superseded')
            else p.end_reason is null or p.end_reason in ('deadline', 'user', 'superseded')
                or (p.started_at is not null and p.end_reason in (
                    'no_pipeline', 'repository_not_https', 'bad_ref', 'minutes_exhausted', 'queue_expired')) end
            then 'builds_reason_fits_status'
        -- A build that was never started has reserved nothing, so it costs nothing.
        when p.charged_seconds < 0 or p.charged_seconds > coalesce(p.max_duration_seconds, 0)
            then 'builds_charge_within_reservation'
        when p.max_duration_seconds <= 0 or p.timeout_seconds <= 0 then 'builds_reservation_is_positive'
        when (p.cancel_requested_at is null) <> (p.cancel_reason is null) then 'builds_cancel_has_a_reason'
        when p.completed and p.ended_at is null then 'builds_completed_is_final' end
$$;

-- Names what does not hold, as the error's constraint.
create function refuse_row(p_table text, p_row text, p_broken text) returns boolean language plpgsql immutable parallel safe as $$
begin
    raise exception '% can''t be so: %', p_row, p_broken
        using errcode = 'check_violation', table = p_table, constraint = p_broken;
end $$;

-- The two that are written most are asked briefly. (A test holds what is brief to `build_breaks`.)
create function build_holds(p builds) returns boolean language plpgsql immutable parallel safe as $$
declare
    v_broken text;
begin
    if p.status = 'running' then
        if num_nulls(p.claimed_by, p.claim_id, p.started_at, p.lease_expires_at) = 0
            and p.max_duration_seconds > 0 and p.timeout_seconds > 0 and not p.completed
            and num_nonnulls(p.end_reason, p.charged_seconds, p.ended_at) = 0
            and num_nulls(p.cancel_requested_at, p.cancel_reason) <> 1
        then
            return true;
        end if;
    elsif p.status = 'success' then
        if num_nulls(p.claimed_by, p.claim_id, p.started_at, p.ended_at) = 0 and p.end_reason is null
            and p.max_duration_seconds > 0 and p.timeout_seconds > 0
            and p.charged_seconds between 0 and p.max_duration_seconds
            and num_nulls(p.cancel_requested_at, p.cancel_reason) <> 1
        then
            return true;
        end if;
    end if;
    v_broken := build_breaks(p);
    return v_broken is null or refuse_row('builds', 'build ' || p.id, v_broken);
end $$;
alter table builds add constraint builds_hold check (build_holds(builds));

create function queue_holds(p queues) returns boolean language plpgsql immutable parallel safe as $$
begin
    if (p.pending > 0 and num_nulls(p.head_number, p.head_seconds) = 0)
        or (p.pending = 0 and not p.open and num_nonnulls(p.head_number, p.head_seconds) = 0)
    then
        return true;
    end if;
    return refuse_row('queues', format('queue %s of %s', p.class_id, p.workspace_id), case
        when p.pending = 0 and num_nonnulls(p.head_number, p.head_seconds) = 0 then 'queues_are_closed_while_empty'
        else 'queues_have_a_head_while_pending' end);
end $$;
alter table queues drop constraint queues_have_a_head_while_pending, drop constraint queues_are_closed_while_empty,
    add constraint queues_hold check (queue_holds(queues));

create function workspace_holds(p workspaces) returns boolean language plpgsql immutable parallel safe as $$
begin
    if p.running > 0 or p.reserved_seconds = 0 then
        return true;
    end if;
    return refuse_row('workspaces', 'workspace ' || p.slug, 'workspaces_reserve_only_for_running');
end $$;
alter table workspaces add constraint workspaces_hold check (workspace_holds(workspaces));

-- (A status can't become another without its reason or its end, so those are what is watched.)
create trigger builds_final_is_final before update of end_reason, charged_seconds, ended_at on builds
    for each row when (old.ended_at is not null) execute function refuse_change_of_final_build();

-- The copy of the plan. A plan is changed under its workspace's lock.
create function copy_plan() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' or new.lapsed then
        update workspaces
        set plan_seconds_per_month = null, plan_build_seconds_max = null, plan_running_max = null, plan_fetched_at = null
        where id = coalesce(new.workspace_id, old.workspace_id);
    else
        update workspaces
        set plan_seconds_per_month = new.seconds_per_month, plan_build_seconds_max = new.build_seconds_max,
            plan_running_max = new.running_max, plan_fetched_at = new.fetched_at
        where id = new.workspace_id;
    end if;
    return null;
end $$;
drop function touch_workspace_of_plan();
create trigger plans_are_copied after insert or update or delete on plans for each row execute function copy_plan();

-- The copy of the board's order. Whoever makes a workspace holds the board's row, so that none is missed by who changes it.
create function copy_order() returns trigger language plpgsql as $$
begin
    select b.fair into new.fair from board b where b.only_row for share;
    return new;
end $$;
create trigger workspaces_know_the_order before insert on workspaces for each row execute function copy_order();
create or replace function refresh_all_queues() returns trigger language plpgsql as $$
begin
    -- All workspaces, in the order in which whoever locks several does: no claim decides by the other order meanwhile.
    perform from workspaces order by id for no key update;
    update workspaces set fair = new.fair;
    return null;
end $$;

-- Whether a worker may take a queue's oldest build: fewer run than the plan allows, and what is left of the month covers it
-- beside what is reserved; null where there is no plan. (`rules::budget::reserve`; a test holds the two equal.)
create function queue_is_open(
    p_head_seconds integer, p_running integer, p_reserved integer, p_charged integer,
    p_month integer, p_longest integer, p_running_max integer
) returns boolean language sql immutable parallel safe as $$
    select p_running < p_running_max and p_charged < p_month
        and least(p_head_seconds, p_longest, p_month - p_charged) <= p_month - p_charged - p_reserved
$$;

-- Sets whether workspaces' queues are open, and how many builds run where the order needs it, wherever that is not so already. The
-- caller holds the workspaces' rows since an earlier statement.
create function set_queues(p_workspaces uuid[]) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    update queues q set open = n.open, running = n.running, changed_at = clock_timestamp()
    from (
        select c.workspace_id, c.class_id, case when w.fair then w.running else 0 end as running,
            c.pending > 0 and coalesce(queue_is_open(c.head_seconds, w.running, w.reserved_seconds, w.charged_seconds,
                w.plan_seconds_per_month, w.plan_build_seconds_max, w.plan_running_max), false) as open
        from workspaces w join queues c on c.workspace_id = w.id where w.id = any (p_workspaces)) n
    where q.workspace_id = n.workspace_id and q.class_id = n.class_id and (q.open, q.running) <> (n.open, n.running);
    update workspaces w set has_closed = not w.has_closed, queues_set = w.queues_set + 1
    where w.id = any (p_workspaces) and w.has_closed <> exists (
        select from queues q where q.workspace_id = w.id and q.pending > 0 and not q.open offset 0);
end $$;

-- Whoever changes a workspace and has not set its queues has them set. It reads with a snapshot of its own, after the lock.
create or replace function refresh_queues() returns trigger language plpgsql as $$
begin
    perform set_queues(array[new.id]);
    return null;
end $$;
create trigger workspaces_refresh_queues after update on workspaces
    for each row when (old.queues_set = new.queues_set) execute function refresh_queues();
drop function queue_is_open(integer, integer, integer, integer, plans);

-- A workspace's secrets of these names, as they are stored.
create function sealed_of(p_workspace uuid, p_names text[]) returns jsonb language sql stable as $$
    select jsonb_agg(jsonb_build_object('name', k.name, 'key_id', k.key_id,
        'nonce', encode(k.nonce, 'hex'), 'ciphertext', encode(k.ciphertext, 'hex')))
    from secrets k where k.workspace_id = p_workspace and k.name = any (p_names)
$$;

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
        (select n.workspace_id from next n where n.workspace_id not in (select id from locked) limit 1)
    into v_locked, held;
    if v_locked is null then
        return;
    end if;

    v_each := ceil(v_limit::numeric / cardinality(v_locked));
    v_now := clock_timestamp();
    v_month := month_of(v_now);
    -- What waits at the front of the locked workspaces' queues.
    with waiting as (
        select w.id as workspace, q.class_id, q.head_number, w.fair, w.running, b.id, b.number, v.verified,
            w.plan_running_max - w.running as slots,
            w.plan_seconds_per_month - m.charged - w.reserved_seconds as free_seconds,
            least(b.timeout_seconds, w.plan_build_seconds_max, p_deadline_max, w.plan_seconds_per_month - m.charged) as seconds
        from unnest(v_locked) l (id) join workspaces w on w.id = l.id join queues q on q.workspace_id = l.id
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
            and w.plan_running_max is not null and plan_is_fresh(w.plan_fetched_at, p_stale_ms, v_now)
    -- What of it fits, in the order of the board. A build that must be checked keeps its workspace's others waiting.
    ), fitting as (
        select n.*, row_number() over board as turn, count(*) filter (where n.all_verified) over board as claim
        from (
            select n.*, row_number() over each as place, sum(n.seconds) over each as reserved,
                bool_and(n.verified) over each as all_verified
            from waiting n window each as (partition by n.workspace order by n.number)) n
        where n.place <= n.slots and n.reserved <= n.free_seconds
        window board as (order by case when n.fair then n.running + n.place else 0 end, n.number
            rows unbounded preceding)
    ), taken as (
        update builds b
        set status = 'running', claimed_by = p_token, claim_id = p_claims[f.claim], started_at = v_now,
            max_duration_seconds = f.seconds, lease_expires_at = v_now + p_lease_ms * interval '1 ms',
            version = b.version + 1
        from fitting f where b.id = f.id and f.turn <= v_limit and f.all_verified
        returning b.id, b.number, f.workspace, f.class_id, f.head_number, f.seconds
    ), gone as (
        select g.*, sum(g.builds) over whole as all_builds, sum(g.seconds) over whole as all_seconds
        from (
            select t.workspace, t.class_id, t.head_number, count(*) as builds, sum(t.seconds) as seconds,
                array_agg(t.number) as numbers
            from taken t group by t.workspace, t.class_id, t.head_number) g
        window whole as (partition by g.workspace)
    -- The queues' new heads, and whether they are open now. (The statement sees what it takes as still waiting.)
    ), moved as (
        update queues q
        set pending = q.pending - h.builds, head_number = h.number, head_seconds = h.timeout_seconds,
            running = case when h.fair then h.running else 0 end, changed_at = v_now,
            open = h.number is not null and queue_is_open(h.timeout_seconds, h.running, h.reserved_seconds, h.charged,
                h.plan_seconds_per_month, h.plan_build_seconds_max, h.plan_running_max)
        from (
            select g.workspace, g.class_id, g.builds, g.seconds, n.number, n.timeout_seconds, w.fair, w.running + g.all_builds::integer as running,
                w.reserved_seconds + g.all_seconds::integer as reserved_seconds,
                case when w.charged_month >= v_month then w.charged_seconds else 0 end as charged,
                w.plan_seconds_per_month, w.plan_build_seconds_max, w.plan_running_max
            from gone g join workspaces w on w.id = g.workspace
            left join lateral (
                select c.number, c.timeout_seconds from builds c
                where c.workspace_id = g.workspace and c.class_id = g.class_id and c.status = 'pending'
                    and c.number >= g.head_number and c.number <> all (g.numbers)
                order by c.number limit 1) n on true) h
        where q.workspace_id = h.workspace and q.class_id = h.class_id
        returning q.workspace_id, q.pending + h.builds as waited, q.pending > 0 and not q.open as is_closed, h.builds, h.seconds
    ), summed as (
        update workspaces w
        set pending = w.pending - s.builds, running = w.running + s.builds, reserved_seconds = w.reserved_seconds + s.seconds,
            charged_seconds = case when w.charged_month >= v_month then w.charged_seconds else 0 end,
            charged_month = greatest(w.charged_month, v_month),
            has_closed = w.has_closed or s.has_closed,
            -- Its other queues, if builds wait there or the order looks at what runs, are the trigger's.
            queues_set = w.queues_set + (w.pending = s.waited and not w.fair)::integer
        from (
            select m.workspace_id, sum(m.builds) as builds, sum(m.seconds) as seconds, sum(m.waited) as waited,
                bool_or(m.is_closed) as has_closed
            from moved m group by m.workspace_id) s
        where w.id = s.workspace_id)
    select (select array_agg(id) from taken), (select array_agg(id) from fitting where turn <= v_limit and not verified)
    into started, unverified;
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
    claim uuid, outcome text, build uuid, workspace uuid, max_seconds integer, deadline_in_ms bigint,
    repository text, git_ref text, commit_sha text, submodules boolean, steps json, env json, secrets text[], clone_secret text,
    sealed jsonb
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set enable_memoize = off set lock_timeout = '2s' as $$
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
        return query select c, 'unauthorized', null::uuid, null::uuid, null::integer, null::bigint, null::text, null::text, null::text,
            null::boolean, null::json, null::json, null::text[], null::text, null::jsonb from unnest(p_claims) c;
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
            return query select null::uuid, 'unverified', b.id, b.workspace_id, null::integer, null::bigint, null::text, null::text,
                null::text, null::boolean, null::json, null::json, null::text[], null::text, null::jsonb
                from builds b where b.id = any (s.unverified);
        end if;
        v_mine := v_mine || s.started;
        v_open := v_open[coalesce(cardinality(s.started), 0) + 1 :];
        exit when s.started is null or s.unverified is not null;
    end loop;
    if cardinality(v_open) > 0 then
        return query select c, case when s.held is null then 'none' else 'contended' end, null::uuid, s.held,
            null::integer, null::bigint, null::text, null::text, null::text, null::boolean, null::json, null::json, null::text[],
            null::text, null::jsonb from unnest(v_open) c;
    end if;

    -- The jobs are part of the answer, so that nothing which could fail comes after the commit.
    return query
        select b.claim_id, case when b.status <> 'running' then 'ended' when b.claim_id = any (v_known) then 'repeat'
                else 'claimed' end,
            b.id, b.workspace_id, b.max_duration_seconds, greatest(0, (extract(epoch from
                b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint),
            p.repository, p.git_ref, p.commit_sha, p.submodules, p.steps, p.env, p.secrets, p.clone_secret,
            case when p.secrets <> '{}' or p.clone_secret is not null then sealed_of(b.workspace_id, p.secrets || p.clone_secret) end
        from builds b join build_specs p on p.build_id = b.id where b.id = any (v_mine);
end $$;

-- Serves one claim, as `claim_builds` does: by fewer and plainer statements where all is as it mostly is (a worker that was seen a moment
-- ago, and the oldest build is one that may start), and else by that function. A test holds the two equal. Each statement relies on the
-- locks of the one before it and repeats what it relies on. A claim that took a build before breaks `builds_claim` if there is another
-- build for it: the caller then asks `claim_builds`, which looks for it first.
create function claim_build(
    p_token text, p_digest bytea, p_claim uuid, p_name text, p_version text, p_host text,
    p_isolation text[], p_labels text[], p_lease_ms bigint, p_deadline_max integer, p_rules smallint, p_stale_ms bigint
) returns table (
    claim uuid, outcome text, build uuid, workspace uuid, max_seconds integer, deadline_in_ms bigint,
    repository text, git_ref text, commit_sha text, submodules boolean, steps json, env json, secrets text[], clone_secret text,
    sealed jsonb
) language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    v_only uuid[];
    v_classes integer[];
    v_build uuid;
    v_workspace uuid;
    v_class integer;
    v_head bigint;
    v_waiting integer;
    v_seconds integer;
    v_longest integer;
    v_free integer;
    v_slots integer;
    v_usual boolean;
    v_open boolean;
    v_next bigint;
    v_next_seconds integer;
    v_now timestamptz;
begin
    select t.workspaces, k.classes into v_only, v_classes
    from tokens t join workers k on k.token_id = t.id and k.host_id = p_host and k.name = p_name
    where t.id = p_token and t.digest = p_digest and t.kind = 'worker' and t.revoked_at is null
        and k.seen_at > clock_timestamp() - interval '15 s' and k.labels = p_labels and k.isolation = p_isolation;

    <<as_mostly>>
    begin
        exit as_mostly when v_classes is null;
        v_now := clock_timestamp();
        if cardinality(v_classes) = 1 then
            select w.id, q.class_id, q.head_number, q.pending, least(q.head_seconds, p_deadline_max, m.longest), m.longest,
                m.free_seconds, w.plan_running_max - w.running,
                w.charged_month = month_of(v_now) and plan_is_fresh(w.plan_fetched_at, p_stale_ms, v_now)
            into v_workspace, v_class, v_head, v_waiting, v_seconds, v_longest, v_free, v_slots, v_usual
            from queues q join workspaces w on w.id = q.workspace_id
            cross join lateral (
                select least(w.plan_build_seconds_max, w.plan_seconds_per_month - w.charged_seconds) as longest,
                    w.plan_seconds_per_month - w.charged_seconds - w.reserved_seconds as free_seconds) m
            where q.class_id = v_classes[1] and q.open and (v_only is null or q.workspace_id = any (v_only))
            order by q.running, q.head_number limit 1 for no key update of w skip locked;
        else
            select w.id, q.class_id, q.head_number, q.pending, least(q.head_seconds, p_deadline_max, m.longest), m.longest,
                m.free_seconds, w.plan_running_max - w.running,
                w.charged_month = month_of(v_now) and plan_is_fresh(w.plan_fetched_at, p_stale_ms, v_now)
            into v_workspace, v_class, v_head, v_waiting, v_seconds, v_longest, v_free, v_slots, v_usual
            from unnest(v_classes) c (id) cross join lateral (
                select n.* from queues n
                where n.class_id = c.id and n.open and (v_only is null or n.workspace_id = any (v_only))
                order by n.running, n.head_number limit 8) q
            join workspaces w on w.id = q.workspace_id
            cross join lateral (
                select least(w.plan_build_seconds_max, w.plan_seconds_per_month - w.charged_seconds) as longest,
                    w.plan_seconds_per_month - w.charged_seconds - w.reserved_seconds as free_seconds) m
            order by q.running, q.head_number limit 1 for no key update of w skip locked;
        end if;
        if not found then
            exit as_mostly when exists (
                    select from queues q where q.class_id = any (v_classes) and q.open
                        and (v_only is null or q.workspace_id = any (v_only)))
                or exists (select from builds b where b.claimed_by = p_token and b.claim_id = p_claim);
            return query select p_claim, 'none', null::uuid, null::uuid, null::integer, null::bigint, null::text, null::text, null::text,
                null::boolean, null::json, null::json, null::text[], null::text, null::jsonb;
            return;
        end if;
        exit as_mostly when (v_usual and v_slots > 0 and v_seconds > 0 and v_seconds <= v_free) is distinct from true;
        select b.id, n.number, n.timeout_seconds, s.repository, s.git_ref, s.commit_sha, s.submodules, s.steps, s.env, s.secrets,
            s.clone_secret
        into v_build, v_next, v_next_seconds, repository, git_ref, commit_sha, submodules, steps, env, secrets, clone_secret
        from builds b join build_specs s on s.build_id = b.id join pipelines i on i.id = s.pipeline_id
        left join lateral (
            select c.number, c.timeout_seconds from builds c
            where c.workspace_id = v_workspace and c.class_id = v_class and c.status = 'pending' and c.number > v_head
            order by c.number limit 1) n on true
        where b.workspace_id = v_workspace and b.class_id = v_class and b.status = 'pending' and b.number = v_head
            and b.rules_version = p_rules
        for update of b skip locked;
        exit as_mostly when not found;
        v_now := clock_timestamp();
        update queues q
        set pending = v_waiting - 1, head_number = v_next, head_seconds = v_next_seconds, changed_at = v_now,
            open = v_next is not null and v_slots > 1 and least(v_next_seconds, v_longest) <= v_free - v_seconds
        where q.workspace_id = v_workspace and q.class_id = v_class and q.head_number = v_head and q.pending = v_waiting and q.open
        returning q.open into v_open;
        exit as_mostly when not found;
        update workspaces w
        set pending = w.pending - 1, running = w.running + 1, reserved_seconds = w.reserved_seconds + v_seconds,
            has_closed = w.has_closed or (v_next is not null and not v_open),
            -- Its other queues, if builds wait there or the order looks at what runs, are the trigger's.
            queues_set = w.queues_set + (w.pending = v_waiting and not w.fair)::integer
        where w.id = v_workspace;
        update builds b
        set status = 'running', claimed_by = p_token, claim_id = p_claim, started_at = v_now, max_duration_seconds = v_seconds,
            lease_expires_at = v_now + p_lease_ms * interval '1 ms', version = b.version + 1
        where b.id = v_build;
        claim := p_claim;
        outcome := 'claimed';
        build := v_build;
        workspace := v_workspace;
        max_seconds := v_seconds;
        deadline_in_ms := v_seconds * 1000::bigint;
        if secrets <> '{}' or clone_secret is not null then
            sealed := sealed_of(v_workspace, secrets || clone_secret);
        end if;
        return next;
        return;
    end;
    return query select * from claim_builds(p_token, p_digest, array[p_claim], array[p_name], array[p_version], array[p_host],
        p_isolation, p_labels, p_lease_ms, p_deadline_max, p_rules, p_stale_ms, '{}', '{}', null);
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
    v_workspaces uuid[];
begin
    select array_agg(distinct l.workspace_id) into v_workspaces from (
        select b.workspace_id from builds b where b.id = any (p_builds) and b.started_at is not null and b.ended_at is null
        order by b.id for no key update) l;
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
            charged_month = greatest(w.charged_month, v_month), queues_set = w.queues_set + 1
        from locked l where w.id = l.id
    )
    select e.id, e.duration_ms, e.charged_seconds from ended e;
    -- An end opens queues and closes none.
    if exists (select from workspaces w where w.id = any (v_workspaces) and (w.fair or (w.has_closed and w.pending > 0))) then
        perform set_queues(v_workspaces);
    end if;
end $$;

-- Ends one build as its worker says, as `end_builds` does: by fewer and plainer statements. A test holds the two equal. (The clock is read
-- before the build's row may be waited for: what is charged is then less than what was seen, never more.)
create function end_build(
    p_build uuid, p_status text, p_reason text, p_message text, p_token text, p_digest bytea, p_ran_ms bigint, p_last_seq bigint,
    p_logs_lost boolean, p_commit text, p_steps jsonb
) returns table (build uuid, duration_ms bigint, charged_seconds integer)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_mergejoin = off set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
    v_workspace uuid;
    v_reserved integer;
    v_charged integer;
    v_opens boolean;
    v_now timestamptz := clock_timestamp();
    v_month date := month_of(v_now);
begin
    update builds b
    set status = p_status, end_reason = case p_status when 'cancelled' then b.cancel_reason else p_reason end,
        error_message = p_message, completed = true, ended_at = v_now, phase = null, last_output_age_ms = null,
        version = b.version + 1, last_seq = p_last_seq, commit_sha = p_commit, step_results = p_steps,
        duration_ms = run_time_ms('completed', b.started_at, null, null, p_ran_ms, v_now),
        charged_seconds = least(b.max_duration_seconds,
            (run_time_ms('completed', b.started_at, null, null, p_ran_ms, v_now) + 999) / 1000)
    where b.id = p_build and b.claimed_by = p_token and b.started_at is not null and b.ended_at is null
        and (p_status <> 'cancelled' or b.cancel_requested_at is not null)
        and exists (select from log_heads h where h.build_id = p_build and (h.next_seq > p_last_seq or p_logs_lost))
        and exists (select from tokens t
            where t.id = p_token and t.digest = p_digest and t.kind = 'worker' and t.revoked_at is null)
    returning b.id, b.duration_ms, b.charged_seconds, b.workspace_id, b.max_duration_seconds
    into build, duration_ms, v_charged, v_workspace, v_reserved;
    if not found then
        return;
    end if;
    insert into charges (build_id, workspace_id, month, seconds, charged_at)
    values (p_build, v_workspace, v_month, v_charged, v_now);
    update workspaces w
    set running = w.running - 1, reserved_seconds = w.reserved_seconds - v_reserved,
        charged_seconds = case when w.charged_month = v_month then w.charged_seconds + v_charged
            when w.charged_month > v_month then w.charged_seconds else v_charged end,
        charged_month = greatest(w.charged_month, v_month), queues_set = w.queues_set + 1
    where w.id = v_workspace
    returning w.fair or (w.has_closed and w.pending > 0) into v_opens;
    -- An end opens queues and closes none.
    if v_opens then
        perform set_queues(array[v_workspace]);
    end if;
    charged_seconds := v_charged;
    return next;
end $$;
