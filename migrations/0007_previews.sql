-- Live previews (SPEC.md, 4): what is wanted of each, on which host; hosts, their ports, and how many places workspaces use.
-- Nothing here is on the way of a claim, a heartbeat or a log batch.

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
