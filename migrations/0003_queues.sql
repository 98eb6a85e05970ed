-- Routing and fair order: a queue for every (workspace, class), open or closed as its workspace's sums say; and checks that
-- cost a claim little (docs/decisions/0006).

-- A check of one column is its domain's: it is looked at when that column is written, and its expression stays in memory.
-- A table's checks are read anew, from text, by every statement that writes a row.
create domain build_status as text
    constraint builds_status_known check (
        value in ('pending', 'running', 'success', 'failed', 'timed_out', 'cancelled'));
create domain build_end_reason as text
    constraint builds_end_reason_known check (value in (
        'step_failed', 'step_timeout', 'silent_timeout', 'clone_failed', 'image_failed', 'never_started',
        'out_of_memory', 'disk_full', 'log_limit', 'worker_lost', 'host_lost', 'overdue', 'worker_shutdown', 'recovery',
        'internal', 'deadline', 'user', 'superseded', 'no_pipeline', 'repository_not_https', 'bad_ref',
        'minutes_exhausted', 'queue_expired'));
create domain build_cancel_reason as text
    constraint builds_cancel_reason_known check (value in ('user', 'superseded'));
create domain build_message as text
    constraint builds_error_message_is_short check (octet_length(value) <= 1024);
create domain workspace_slug as text
    constraint workspaces_slug_is_one check (value ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$');
create domain month as date
    constraint workspaces_month_is_a_first check (extract(day from value) = 1);

alter table builds
    drop constraint builds_status_known, drop constraint builds_end_reason_known,
    drop constraint builds_cancel_reason_known, drop constraint builds_error_message_is_short,
    drop constraint builds_reason_fits_status, drop constraint builds_unstarted_reasons_fit,
    drop constraint builds_unstarted_is_not_success, drop constraint builds_pending_is_unclaimed,
    drop constraint builds_running_is_leased, drop constraint builds_started_has_a_claim,
    drop constraint builds_final_has_an_end, drop constraint builds_charge_within_reservation,
    drop constraint builds_reservation_is_positive, drop constraint builds_cancel_has_a_reason,
    drop constraint builds_completed_is_final, drop constraint builds_claimed_by_fkey;
drop trigger builds_final_is_final on builds;
drop index builds_pending;
drop index builds_pending_age;
drop index builds_running;
alter table builds
    alter column status type build_status, alter column end_reason type build_end_reason,
    alter column cancel_reason type build_cancel_reason, alter column error_message type build_message;
create trigger builds_final_is_final before update of status, end_reason, charged_seconds, ended_at on builds
    for each row when (old.ended_at is not null) execute function refuse_change_of_final_build();

-- A worker's token is revoked, never deleted: `claimed_by` names one for as long as the build is kept. (A foreign key would
-- lock the token's row for every claim, and all of a fleet's claims share it.)
create function refuse_deletion_of_token() returns trigger language plpgsql as $$
begin
    raise exception 'token % is to be revoked, not deleted', old.id
        using errcode = 'foreign_key_violation', constraint = 'tokens_of_workers_are_kept';
end $$;
create trigger tokens_of_workers_are_kept before delete on tokens
    for each row when (old.kind = 'worker') execute function refuse_deletion_of_token();

-- What a build needs of a worker: labels, and back ends for its steps' images. Builds that need the same are of one class.
create table classes (
    id integer generated always as identity primary key,
    requires text[] not null,
    host boolean not null,
    image boolean not null,
    constraint classes_are_distinct unique (requires, host, image)
);

-- A worker token may be limited to some workspaces; null: all.
alter table tokens add column workspaces uuid[],
    add constraint tokens_only_workers_are_limited check (workspaces is null or kind = 'worker');

-- The classes that a worker covers, kept so that a claim need not compare labels.
alter table workers add column classes integer[] not null default '{}';

create function worker_covers(p_class classes, p_isolation text[], p_labels text[]) returns boolean
language sql immutable parallel safe as $$
    select p_class.requires <@ p_labels and (not p_class.host or 'bubblewrap' = any (p_isolation))
        and (not p_class.image or p_isolation && '{docker,ecs}')
$$;

create function classes_covered(p_isolation text[], p_labels text[]) returns integer[] language sql stable as $$
    select coalesce(array_agg(c.id order by c.id), '{}') from classes c where worker_covers(c, p_isolation, p_labels)
$$;

create function tell_workers_of_class() returns trigger language plpgsql as $$
begin
    update workers k set classes = k.classes || new.id where worker_covers(new, k.isolation, k.labels);
    return null;
end $$;
create trigger classes_are_told after insert on classes for each row execute function tell_workers_of_class();

-- The class of what a build needs. Held against the sweep, which forgets unused ones, until the transaction ends.
create function class_of(p_requires text[], p_host boolean, p_image boolean) returns integer language plpgsql as $$
declare
    v_id integer;
begin
    loop
        select c.id into v_id from classes c
        where c.requires = p_requires and c.host = p_host and c.image = p_image for key share;
        exit when found;
        insert into classes (requires, host, image) values (p_requires, p_host, p_image) on conflict do nothing;
    end loop;
    return v_id;
end $$;

-- The builds of one workspace and class that wait, oldest first. A claim finds the next one by this row alone.
create table queues (
    workspace_id uuid not null references workspaces (id) on delete cascade,
    class_id integer not null references classes (id),
    pending integer not null default 0,
    -- The oldest pending build's number, and how long it asks to run.
    head_number bigint,
    head_seconds integer,
    -- Under `fair`, how many builds of the workspace run, of any class; else 0.
    running integer not null default 0,
    -- A worker may take its oldest build now.
    open boolean not null default false,
    changed_at timestamptz not null default clock_timestamp(),
    primary key (workspace_id, class_id),
    constraint queues_have_a_head_while_pending check (
        pending >= 0 and (pending > 0) = (head_number is not null) and (pending > 0) = (head_seconds is not null)),
    constraint queues_are_closed_while_empty check (pending > 0 or not open)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

create index queues_next on queues (class_id, running, head_number) where open;
create index queues_closed on queues (workspace_id) where pending > 0 and not open;

alter table builds add column class_id integer;
insert into classes (requires, host, image)
select distinct s.requires, jsonb_path_exists(s.steps, '$[*] ? (@.image == "host")'),
    jsonb_path_exists(s.steps, '$[*] ? (@.image != "host")')
from builds b join build_specs s on s.build_id = b.id where b.status = 'pending';
update builds b set class_id = c.id
from build_specs s, classes c
where b.status = 'pending' and s.build_id = b.id and c.requires = s.requires
    and c.host = jsonb_path_exists(s.steps, '$[*] ? (@.image == "host")')
    and c.image = jsonb_path_exists(s.steps, '$[*] ? (@.image != "host")');
insert into queues (workspace_id, class_id, pending, head_number, head_seconds)
select b.workspace_id, b.class_id, count(*), min(b.number), (array_agg(b.timeout_seconds order by b.number))[1]
from builds b where b.status = 'pending' group by b.workspace_id, b.class_id;
-- What must hold for a build, each by its name: the error says which does not. One check, since the table's checks are what a
-- claim paid for most; this one is a call. Where a condition is unknown, it holds.
create function build_holds(
    p_id uuid, p_status text, p_class integer, p_timeout integer, p_token text,
    p_claim uuid, p_started timestamptz, p_max integer, p_lease timestamptz, p_cancelled_at timestamptz,
    p_cancel_reason text, p_ended timestamptz, p_completed boolean, p_charged integer, p_reason text
) returns boolean language plpgsql immutable parallel safe as $$
declare
    v_broken text;
begin
    v_broken := case
        when p_status = 'pending' and num_nonnulls(
            p_token, p_claim, p_started, p_lease, p_ended) > 0 then 'builds_pending_is_unclaimed'
        when p_status = 'pending' and p_class is null then 'builds_pending_has_a_class'
        when p_status = 'running' and (p_ended is not null or num_nulls(
            p_token, p_claim, p_started, p_lease, p_max) > 0)
            then 'builds_running_is_leased'
        when num_nulls(p_token, p_claim, p_started, p_max) not in (0, 4)
            then 'builds_started_has_a_claim'
        when (p_status in ('pending', 'running')) <> (p_ended is null)
            or (p_ended is null) <> (p_charged is null) then 'builds_final_has_an_end'
        when case p_status
            when 'pending' then p_reason is not null
            when 'running' then p_reason is not null
            when 'success' then p_reason is not null or p_started is null
            when 'timed_out' then p_reason is distinct from 'deadline' or p_started is null
            when 'cancelled' then p_reason is null or p_reason not in ('user', 'superseded')
            else p_reason is null or p_reason in ('deadline', 'user', 'superseded')
                or (p_started is not null and p_reason in (
                    'no_pipeline', 'repository_not_https', 'bad_ref', 'minutes_exhausted', 'queue_expired')) end
            then 'builds_reason_fits_status'
        -- A build that was never started has reserved nothing, so it costs nothing.
        when p_charged < 0 or p_charged > coalesce(p_max, 0)
            then 'builds_charge_within_reservation'
        when p_max <= 0 or p_timeout <= 0 then 'builds_reservation_is_positive'
        when (p_cancelled_at is null) <> (p_cancel_reason is null) then 'builds_cancel_has_a_reason'
        when p_completed and p_ended is null then 'builds_completed_is_final' end;
    if v_broken is not null then
        raise exception 'build % can''t be so: %', p_id, v_broken
            using errcode = 'check_violation', table = 'builds', constraint = v_broken;
    end if;
    return true;
end $$;

alter table builds add constraint builds_hold check (build_holds(
    id, status, class_id, timeout_seconds, claimed_by, claim_id, started_at, max_duration_seconds, lease_expires_at,
    cancel_requested_at, cancel_reason, ended_at, completed, charged_seconds, end_reason));

create index builds_pending on builds (workspace_id, class_id, number) where status = 'pending';
create index builds_pending_age on builds (created_at) where status = 'pending';
create index builds_running on builds (id) where status = 'running';

-- The plan in effect is the row of `plans`; none: it can't be read. One that a billing service gave has the instant at which it
-- was asked for, and has lapsed once the sweep found it stale: then it can't be read either.
alter table plans add column fetched_at timestamptz, add column lapsed boolean not null default false,
    add constraint plans_of_the_tables_never_lapse check (fetched_at is not null or not lapsed);
create index plans_age on plans (fetched_at) where fetched_at is not null;

-- Whether a plan that was asked for at `p_fetched_at` may still be relied on: up to `p_stale_ms` later, that included.
-- (`rules::billing::is_fresh`; a test holds the two equal.)
create function plan_is_fresh(p_fetched_at timestamptz, p_stale_ms bigint, p_now timestamptz)
returns boolean language sql stable parallel safe as $$
    select p_fetched_at is null or p_fetched_at >= p_now - p_stale_ms * interval '1 ms'
$$;

insert into plans (workspace_id, seconds_per_month, build_seconds_max, running_max, pending_max)
select id, plan_seconds_per_month, plan_build_seconds_max, plan_running_max, plan_pending_max
from workspaces where plan_seconds_per_month is not null
on conflict (workspace_id) do update
set seconds_per_month = excluded.seconds_per_month, build_seconds_max = excluded.build_seconds_max,
    running_max = excluded.running_max, pending_max = excluded.pending_max;

drop index workspaces_queue;
alter table workspaces
    drop column eligible, drop column head_number, drop column head_seconds, drop column plan_seconds_per_month,
    drop column plan_build_seconds_max, drop column plan_running_max, drop column plan_pending_max,
    drop constraint workspaces_slug_is_one, drop constraint workspaces_month_is_a_first,
    alter column slug type workspace_slug, alter column charged_month type month;

-- What holds for the whole board.
create table board (
    only_row boolean primary key default true,
    -- The order of claims: the workspace with the fewest running builds first, or the oldest build first.
    fair boolean not null default false,
    constraint board_is_one_row check (only_row)
);
insert into board default values;

-- Whether a worker may take a queue's oldest build: fewer run than the plan allows, and what is left of the month covers it
-- beside what is reserved. (`rules::budget::reserve`; a test holds the two equal.)
create function queue_is_open(
    p_head_seconds integer, p_running integer, p_reserved integer, p_charged integer, p_plan plans
) returns boolean language sql immutable parallel safe as $$
    select not p_plan.lapsed and p_running < p_plan.running_max and p_charged < p_plan.seconds_per_month
        and least(p_head_seconds, p_plan.build_seconds_max, p_plan.seconds_per_month - p_charged)
            <= p_plan.seconds_per_month - p_charged - p_reserved
$$;

-- Sets whether workspaces' queues are open, wherever that is not so already. Their rows are locked by whoever changed them, who has
-- changed the queues' heads before, in the same transaction. (It is planned once a connection, perhaps while tables are empty: the
-- settings leave it indexes and nested loops.)
create function refresh_queues() returns trigger language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    update queues q set open = n.open, running = n.running, changed_at = clock_timestamp()
    from (
        select c.workspace_id, c.class_id,
            case when (select fair from board where only_row) then w.running else 0 end as running,
            c.pending > 0 and coalesce(queue_is_open(
                c.head_seconds, w.running, w.reserved_seconds, w.charged_seconds, p), false) as open
        from changed w join queues c on c.workspace_id = w.id left join plans p on p.workspace_id = w.id) n
    where q.workspace_id = n.workspace_id and q.class_id = n.class_id and (q.open, q.running) <> (n.open, n.running);
    return null;
end $$;
create trigger workspaces_refresh_queues after update on workspaces
    referencing new table as changed for each statement execute function refresh_queues();

-- A plan is changed under its workspace's lock; touching the workspace refreshes its queues.
create function touch_workspace_of_plan() returns trigger language plpgsql as $$
begin
    update workspaces set pending = pending where id = coalesce(new.workspace_id, old.workspace_id);
    return null;
end $$;
create trigger plans_touch_workspaces after insert or update or delete on plans
    for each row execute function touch_workspace_of_plan();

create function refresh_all_queues() returns trigger language plpgsql as $$
begin
    -- All workspaces, in the order in which whoever locks several does: no claim decides by the other order meanwhile.
    perform from workspaces order by id for no key update;
    update queues q set running = case when new.fair then w.running else 0 end, changed_at = clock_timestamp()
    from workspaces w
    where w.id = q.workspace_id and q.running <> case when new.fair then w.running else 0 end;
    return null;
end $$;
create trigger board_refreshes_queues after update of fair on board
    for each row when (old.fair <> new.fair) execute function refresh_all_queues();

update workspaces set pending = pending where pending > 0;
