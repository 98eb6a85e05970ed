-- Live previews (SPEC.md, 4): what is wanted of each, on which host; hosts, their ports, and how many places workspaces use.
-- Of claims, heartbeats and log batches, only claims know of them: a job says what its preview is.

create domain preview_state as text
    constraint previews_status_known check (
        value in ('starting', 'running', 'expired', 'destroying', 'destroyed', 'failed'));
create domain preview_stage as text
    constraint previews_stage_known check (value in (
        'start', 'run', 'recovery', 'unsupported', 'host_lost', 'internal'));
create domain preview_wait as text
    constraint previews_waiting_for_known check (value in ('host', 'quota', 'port'));
create domain preview_url as text
    constraint previews_url_is_one check (value ~ '^https?://[!-~]+$' and octet_length(value) <= 2048);
create domain preview_message as text
    constraint previews_message_is_short check (octet_length(value) <= 1024);
create domain preview_log_tail as text
    constraint previews_log_tail_is_short check (octet_length(value) <= 16384);
create domain port as integer
    constraint ports_are_ports check (value between 1 and 65535);

-- What a plan allows of previews; those that are there get what plans have that say nothing of it.
alter table plans
    add column previews_max integer not null default 4,
    add column preview_seconds_max integer not null default 86400,
    add constraint plans_of_previews_are_not_negative check (
        previews_max >= 0 and preview_seconds_max between 1 and 86400);

-- What is started after success. A build says on its own row whether it has one, so that an end looks no further.
alter table build_specs add column preview jsonb;
alter table builds add column has_preview boolean not null default false;

-- A host that holds previews: of one token, since another's is another host, whatever it calls itself.
create table preview_hosts (
    token_id text not null references tokens (id),
    host_id text not null,
    first_port port not null,
    last_port port not null,
    synced_at timestamptz not null,
    primary key (token_id, host_id),
    constraint preview_hosts_id_is_short check (octet_length(host_id) between 1 and 255),
    constraint preview_hosts_ports_are_a_range check (first_port <= last_port)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- How many live previews a workspace has. A row of its own, so that previews never wait for claims, nor claims for them.
create table preview_places (
    workspace_id uuid primary key references workspaces (id) on delete cascade,
    taken integer not null default 0,
    constraint preview_places_are_not_negative check (taken >= 0)
) with (fillfactor = 50);

create table previews (
    id uuid primary key default uuid_v7(),
    -- Its build's. Neither it nor the token has a foreign key: an end would lock their rows for what the build's row makes sure of.
    workspace_id uuid not null,
    -- The build is kept for as long as its preview's row is: no cascade.
    build_id uuid not null references builds (id),
    -- The worker token that completed the build: one of its hosts has the workspace, and says so in its next sync.
    token_id text not null,
    host_id text,
    status preview_state not null default 'starting',
    stage preview_stage,
    message preview_message,
    log_tail preview_log_tail,
    waiting_for preview_wait default 'host',
    url preview_url,
    -- What the host last said that it has bound, and a lease was given for.
    port port,
    -- It has one of its workspace's places.
    placed boolean not null default false,
    ttl_seconds integer not null,
    retain_failed boolean not null,
    version bigint not null default 1,
    created_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    expires_at timestamptz not null,
    destroyed_at timestamptz,
    constraint previews_are_one_a_build unique (build_id),
    constraint previews_have_a_known_host foreign key (token_id, host_id) references preview_hosts (token_id, host_id),
    constraint previews_ttl_is_positive check (ttl_seconds > 0),
    constraint previews_failed_has_a_stage check (
        (status <> 'failed' or stage is not null) and (stage is null or status in ('failed', 'destroying', 'destroyed'))),
    constraint previews_running_is_reached check (
        status <> 'running' or (placed and num_nulls(host_id, url, port, started_at) = 0)),
    constraint previews_place_only_while_live check (not placed or status in ('starting', 'running')),
    constraint previews_wait_only_while_starting check (waiting_for is null or status = 'starting'),
    constraint previews_port_has_a_host check (port is null or host_id is not null),
    constraint previews_destroyed_has_an_end check ((status = 'destroyed') = (destroyed_at is not null)),
    constraint previews_destroyed_has_no_port check (status <> 'destroyed' or port is null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index previews_newest on previews (workspace_id, id);
create index previews_of_host on previews (token_id, host_id) where status <> 'destroyed';
create index previews_due on previews (expires_at)
    where status in ('starting', 'running') or (status = 'failed' and not retain_failed);
create index previews_expired on previews (id) where status = 'expired';
create index previews_destroying on previews (id) where status = 'destroying';
create index previews_unclaimed on previews (created_at) where host_id is null and status = 'starting';
create index previews_old on previews (destroyed_at) where status = 'destroyed';

-- A host's port, held by one preview at a time.
create table port_leases (
    token_id text not null,
    host_id text not null,
    port port not null,
    preview_id uuid not null references previews (id) on delete cascade,
    leased_at timestamptz not null default clock_timestamp(),
    primary key (token_id, host_id, port),
    constraint port_leases_are_one_a_preview unique (preview_id),
    constraint port_leases_have_a_known_host foreign key (token_id, host_id)
        references preview_hosts (token_id, host_id) on delete cascade
);

-- When a sweep last cleaned previews up.
alter table sweeps add column previews_at timestamptz;

-- Which state may follow which, whoever moves it. (`rules::preview::State::may_become`; a test holds the two equal.)
create function preview_may_become(p_from text, p_to text) returns boolean language sql immutable parallel safe as $$
    select case p_from
        when 'starting' then p_to in ('running', 'failed', 'destroying')
        when 'running' then p_to in ('expired', 'failed', 'destroying')
        when 'expired' then p_to = 'destroying'
        when 'failed' then p_to = 'destroying'
        when 'destroying' then p_to = 'destroyed'
        else false end
$$;

create function refuse_move_of_preview() returns trigger language plpgsql as $$
begin
    raise exception 'preview % is %, and can''t become %', old.id, old.status, new.status
        using errcode = 'check_violation', table = 'previews',
            constraint = case old.status when 'destroyed' then 'previews_destroyed_is_final' else 'previews_move_as_they_may' end;
end $$;
create trigger previews_destroyed_is_final before update on previews
    for each row when (old.status = 'destroyed') execute function refuse_move_of_preview();
create trigger previews_move_as_they_may before update of status on previews
    for each row when (old.status <> new.status and not preview_may_become(old.status, new.status))
    execute function refuse_move_of_preview();

-- Counts places. Whoever changes previews has locked their rows before; the places come after, by their workspaces' ids.
create function count_preview_places() returns trigger language plpgsql as $$
begin
    with changed as (
        select c.workspace_id, sum(c.n) as n from (
            select workspace_id, 1 as n from new_previews where placed
            union all select workspace_id, -1 from old_previews where placed) c
        group by c.workspace_id having sum(c.n) <> 0
    ), locked as materialized (
        select p.workspace_id, c.n from preview_places p join changed c on c.workspace_id = p.workspace_id
        order by p.workspace_id for no key update of p)
    update preview_places p set taken = p.taken + l.n from locked l where p.workspace_id = l.workspace_id;
    return null;
end $$;
create trigger previews_count_places after update on previews
    referencing old table as old_previews new table as new_previews
    for each statement execute function count_preview_places();

-- A successful end makes the preview, in its own transaction. It reads no plan: that is for the first sync.
create function insert_preview() returns trigger language plpgsql as $$
begin
    insert into previews (workspace_id, build_id, token_id, ttl_seconds, retain_failed, expires_at)
    select new.workspace_id, new.id, new.claimed_by, (s.preview ->> 'ttl_seconds')::integer,
        coalesce((s.preview ->> 'retain_failed')::boolean, false),
        new.ended_at + (s.preview ->> 'ttl_seconds')::integer * interval '1 s'
    from build_specs s where s.build_id = new.id and s.preview is not null;
    return null;
end $$;
create trigger builds_success_makes_a_preview after update of status on builds
    for each row when (new.has_preview and new.status = 'success') execute function insert_preview();

-- Writes what a host's reports change, a row each; those that it wrote, as they are now. A row that is not at the version that
-- the caller decided on stays as it is. Rows are locked by their ids, then places by their workspaces'.
create function sync_previews(
    p_token text, p_host text, p_ids uuid[], p_versions bigint[], p_statuses text[], p_stages text[], p_messages text[],
    p_log_tails text[], p_urls text[], p_ports integer[], p_waits text[], p_places boolean[]
) returns setof previews language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '2s' as $$
declare
    v_ids uuid[];
begin
    perform from previews p where p.id = any (p_ids) order by p.id for no key update;
    select array_agg(p.id) into v_ids
    from unnest(p_ids, p_versions) s (id, version) join previews p on p.id = s.id
    where p.version = s.version and p.token_id = p_token and coalesce(p.host_id, p_host) = p_host;
    insert into preview_places (workspace_id)
    select distinct p.workspace_id from previews p where p.id = any (v_ids) order by 1 on conflict do nothing;
    perform from preview_places l
    where l.workspace_id in (select p.workspace_id from previews p where p.id = any (v_ids))
    order by l.workspace_id for no key update;

    delete from port_leases l using unnest(p_ids, p_ports) s (id, port)
    where s.id = any (v_ids) and l.preview_id = s.id and l.port is distinct from s.port;
    insert into port_leases (token_id, host_id, port, preview_id)
    select p_token, p_host, s.port, s.id from unnest(p_ids, p_ports) s (id, port)
    where s.id = any (v_ids) and s.port is not null order by s.port on conflict do nothing;

    return query with wanted as materialized (
        select s.*, p.workspace_id, l.port as leased, s.port is null or l.port is not null as bound, q.preview_seconds_max,
            -- The oldest first, as many as there are places left.
            p.placed or coalesce(s.place and row_number() over (partition by p.workspace_id order by not s.place, p.id)
                <= q.previews_max - c.taken, false) as placed
        from unnest(p_ids, p_versions, p_statuses, p_stages, p_messages, p_log_tails, p_urls, p_ports, p_waits, p_places) s (
                id, version, status, stage, message, log_tail, url, port, waits, place)
            join previews p on p.id = s.id
            join preview_places c on c.workspace_id = p.workspace_id
            left join plans q on q.workspace_id = p.workspace_id and not q.lapsed
            left join port_leases l on l.preview_id = s.id and l.port = s.port
        where s.id = any (v_ids)
    ), timed as materialized (
        select w.*, least(p.ttl_seconds, case when w.placed and not p.placed then w.preview_seconds_max end) as ttl_seconds,
            -- One whose port somebody else holds does not run.
            case when w.status = 'running' and not w.bound then p.status else w.status end as next_status
        from wanted w join previews p on p.id = w.id)
    update previews p
    set host_id = p_host, status = t.next_status, stage = coalesce(t.stage, p.stage), message = t.message,
        log_tail = coalesce(t.log_tail, p.log_tail), version = p.version + 1, port = t.leased,
        url = case when t.next_status = 'running' then coalesce(t.url, p.url) end,
        placed = t.placed and t.next_status in ('starting', 'running'),
        waiting_for = case when t.next_status <> 'starting' then null when not t.placed then 'quota' else t.waits end,
        ttl_seconds = t.ttl_seconds,
        started_at = case when t.next_status = 'running' then coalesce(p.started_at, clock_timestamp()) else p.started_at end,
        -- Its time counts from when it gets its place, then from when it first answers; what was put off stays.
        expires_at = case
            when t.placed and not p.placed then clock_timestamp() + t.ttl_seconds * interval '1 s'
            when t.next_status = 'running' and p.started_at is null
                then greatest(p.expires_at, clock_timestamp() + t.ttl_seconds * interval '1 s')
            else p.expires_at end,
        destroyed_at = case when t.next_status = 'destroyed' then clock_timestamp() end
    from timed t where p.id = t.id
    returning p.*;
end $$;

-- The secrets that a build's steps, its clone and registries get.
create function secrets_named(p_secrets text[], p_clone_secret text, p_registry_secrets jsonb) returns text[] language sql immutable as $$
    select p_secrets || p_clone_secret || array(select r.value from jsonb_each_text(p_registry_secrets) r)
$$;

-- Claims as 0006 has them; a job has the secrets of its registries too, and the preview that its worker is to start.
drop function claim_build(text, bytea, uuid, text, text, text, text[], text[], bigint, integer, smallint, bigint);
drop function claim_builds(text, bytea, uuid[], text[], text[], text[], text[], text[], bigint, integer, smallint, bigint, uuid[], uuid[], uuid);

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
    registry_secrets jsonb, preview jsonb, sealed jsonb
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
            null::boolean, null::json, null::json, null::text[], null::text, null::jsonb, null::jsonb, null::jsonb from unnest(p_claims) c;
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
                null::text, null::boolean, null::json, null::json, null::text[], null::text, null::jsonb, null::jsonb, null::jsonb
                from builds b where b.id = any (s.unverified);
        end if;
        v_mine := v_mine || s.started;
        v_open := v_open[coalesce(cardinality(s.started), 0) + 1 :];
        exit when s.started is null or s.unverified is not null;
    end loop;
    if cardinality(v_open) > 0 then
        return query select c, case when s.held is null then 'none' else 'contended' end, null::uuid, s.held,
            null::integer, null::bigint, null::text, null::text, null::text, null::boolean, null::json, null::json, null::text[],
            null::text, null::jsonb, null::jsonb, null::jsonb from unnest(v_open) c;
    end if;

    -- The jobs are part of the answer, so that nothing which could fail comes after the commit.
    return query
        select b.claim_id, case when b.status <> 'running' then 'ended' when b.claim_id = any (v_known) then 'repeat'
                else 'claimed' end,
            b.id, b.workspace_id, b.max_duration_seconds, greatest(0, (extract(epoch from
                b.started_at + b.max_duration_seconds * interval '1 s' - clock_timestamp()) * 1000)::bigint),
            p.repository, p.git_ref, p.commit_sha, p.submodules, p.steps, p.env, p.secrets, p.clone_secret,
            p.registry_secrets, p.preview,
            case when p.secrets <> '{}' or p.clone_secret is not null or p.registry_secrets <> '{}' then
                sealed_of(b.workspace_id, secrets_named(p.secrets, p.clone_secret, p.registry_secrets)) end
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
    registry_secrets jsonb, preview jsonb, sealed jsonb
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
                null::boolean, null::json, null::json, null::text[], null::text, null::jsonb, null::jsonb, null::jsonb;
            return;
        end if;
        exit as_mostly when (v_usual and v_slots > 0 and v_seconds > 0 and v_seconds <= v_free) is distinct from true;
        select b.id, n.number, n.timeout_seconds, s.repository, s.git_ref, s.commit_sha, s.submodules, s.steps, s.env, s.secrets,
            s.clone_secret, s.registry_secrets, s.preview
        into v_build, v_next, v_next_seconds, repository, git_ref, commit_sha, submodules, steps, env, secrets, clone_secret,
            registry_secrets, preview
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
        if secrets <> '{}' or clone_secret is not null or registry_secrets <> '{}' then
            sealed := sealed_of(v_workspace, secrets_named(secrets, clone_secret, registry_secrets));
        end if;
        return next;
        return;
    end;
    return query select * from claim_builds(p_token, p_digest, array[p_claim], array[p_name], array[p_version], array[p_host],
        p_isolation, p_labels, p_lease_ms, p_deadline_max, p_rules, p_stale_ms, '{}', '{}', null);
end $$;
