-- The board: builds and what they cost. Written once, changed only by later migrations (expand, then contract).
-- Every invariant that SPEC.md states is a named CHECK; what a CHECK can't see is a trigger or a unique index.

-- Ids are made by the database, since only its clock decides: UUIDv7, so that they sort by the time they were made.
create function uuid_v7_floor(p_at timestamptz) returns uuid language sql immutable parallel safe as $$
    select (lpad(to_hex((extract(epoch from p_at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

create function uuid_v7() returns uuid language sql volatile parallel safe as $$
    select encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
            52, 1), 53, 1), 'hex')::uuid
$$;

create function month_of(p_at timestamptz) returns date language sql immutable parallel safe as $$
    select date_trunc('month', p_at at time zone 'UTC')::date
$$;

-- Who is budgeted. Its queue's head, its sums and whether it is eligible stand on its row, kept by whatever changes
-- them, so that a claim never reads the rows of workspaces that it skips.
create table workspaces (
    id uuid primary key default uuid_v7(),
    slug text not null,
    created_at timestamptz not null default clock_timestamp(),
    -- The plan in effect; all four are null when it can't be read.
    plan_seconds_per_month integer,
    plan_build_seconds_max integer,
    plan_running_max integer,
    plan_pending_max integer,
    charged_month date not null default month_of(clock_timestamp()),
    charged_seconds integer not null default 0,
    reserved_seconds integer not null default 0,
    running integer not null default 0,
    pending integer not null default 0,
    -- The oldest pending build's number, and how long it asks to run.
    head_number bigint,
    head_seconds integer,
    -- A worker may take something of this workspace now: it has a build waiting, fewer running than its plan allows,
    -- and minutes that cover its oldest build, or none at all (then that build is to fail).
    eligible boolean not null generated always as (coalesce(
        pending > 0
        and running < plan_running_max
        and (
            charged_seconds >= plan_seconds_per_month
            or least(head_seconds, plan_build_seconds_max, plan_seconds_per_month - charged_seconds)
                <= plan_seconds_per_month - charged_seconds - reserved_seconds
        ), false)) stored,
    constraint workspaces_slug_unique unique (slug),
    constraint workspaces_slug_is_one check (slug ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    constraint workspaces_plan_is_whole check (num_nulls(
        plan_seconds_per_month, plan_build_seconds_max, plan_running_max, plan_pending_max) in (0, 4)),
    constraint workspaces_plan_is_not_negative check (
        plan_seconds_per_month >= 0 and plan_build_seconds_max > 0 and plan_running_max >= 0 and plan_pending_max >= 0),
    constraint workspaces_sums_are_not_negative check (
        charged_seconds >= 0 and reserved_seconds >= 0 and running >= 0 and pending >= 0),
    constraint workspaces_reserve_only_for_running check (running > 0 or reserved_seconds = 0),
    constraint workspaces_head_only_while_pending check (
        (pending > 0) = (head_number is not null) and (head_number is null) = (head_seconds is null)),
    constraint workspaces_month_is_a_first check (extract(day from charged_month) = 1)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

create index workspaces_queue on workspaces (head_number) where eligible;

-- Where plans live, for boards without a billing service. The workspace's row holds the copy that is in effect.
create table plans (
    workspace_id uuid primary key references workspaces (id) on delete cascade,
    seconds_per_month integer not null,
    build_seconds_max integer not null,
    running_max integer not null,
    pending_max integer not null,
    updated_at timestamptz not null default clock_timestamp(),
    constraint plans_are_not_negative check (
        seconds_per_month >= 0 and build_seconds_max between 1 and 86400 and running_max >= 0 and pending_max >= 0)
);

create table pipelines (
    id uuid primary key default uuid_v7(),
    workspace_id uuid not null references workspaces (id) on delete cascade,
    slug text not null,
    spec jsonb not null,
    version bigint not null default 1,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint pipelines_slug_unique unique (workspace_id, slug),
    constraint pipelines_slug_is_one check (slug ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$')
);

-- Values are sealed before they get here (AEAD, bound to workspace and name); the key's id says which key opens them.
create table secrets (
    workspace_id uuid not null references workspaces (id) on delete cascade,
    name text not null,
    key_id text not null,
    nonce bytea not null,
    ciphertext bytea not null,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (workspace_id, name),
    constraint secrets_name_is_a_variable check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$')
);

-- Only a digest is stored; its first 8 hex digits are the id that `claimed_by` holds.
create table tokens (
    id text primary key,
    digest bytea not null,
    kind text not null,
    workspace_id uuid references workspaces (id) on delete cascade,
    name text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    revoked_at timestamptz,
    constraint tokens_id_is_of_the_digest check (octet_length(digest) = 32 and id = left(encode(digest, 'hex'), 8)),
    constraint tokens_kind_known check (kind in ('worker', 'api', 'operator')),
    constraint tokens_api_has_a_workspace check ((kind = 'api') = (workspace_id is not null))
);

-- A build's state: the row that claim, heartbeat, complete and reaper write. What never changes is in build_specs, so
-- that a heartbeat copies a short row. Nothing that a heartbeat changes is in an index.
create sequence build_numbers as bigint;

create table builds (
    id uuid primary key default uuid_v7(),
    workspace_id uuid not null references workspaces (id),
    number bigint not null default nextval('build_numbers'),
    status text not null default 'pending',
    end_reason text,
    error_message text,
    version bigint not null default 1,
    created_at timestamptz not null default clock_timestamp(),
    timeout_seconds integer not null,
    rules_version smallint not null,
    claimed_by text references tokens (id),
    claim_id uuid,
    started_at timestamptz,
    max_duration_seconds integer,
    lease_expires_at timestamptz,
    phase text,
    last_output_age_ms bigint,
    cancel_requested_at timestamptz,
    cancel_reason text,
    ended_at timestamptz,
    completed boolean not null default false,
    duration_ms bigint,
    charged_seconds integer,
    last_seq bigint,
    commit_sha text,
    step_results jsonb,
    constraint builds_status_known check (
        status in ('pending', 'running', 'success', 'failed', 'timed_out', 'cancelled')),
    constraint builds_end_reason_known check (end_reason in (
        'step_failed', 'step_timeout', 'silent_timeout', 'clone_failed', 'image_failed', 'never_started',
        'out_of_memory', 'disk_full', 'log_limit', 'worker_lost', 'host_lost', 'overdue', 'worker_shutdown', 'recovery',
        'internal', 'deadline', 'user', 'superseded', 'no_pipeline', 'repository_not_https', 'bad_ref',
        'minutes_exhausted', 'queue_expired')),
    constraint builds_reason_fits_status check (case status
        when 'timed_out' then end_reason is not null and end_reason = 'deadline'
        when 'cancelled' then end_reason is not null and end_reason in ('user', 'superseded')
        when 'failed' then end_reason is not null and end_reason not in ('deadline', 'user', 'superseded')
        else end_reason is null end),
    constraint builds_pending_is_unclaimed check (
        status <> 'pending' or num_nonnulls(claimed_by, claim_id, started_at, lease_expires_at, ended_at) = 0),
    constraint builds_running_is_leased check (
        status <> 'running' or (
            num_nulls(claimed_by, claim_id, started_at, lease_expires_at, max_duration_seconds) = 0
            and ended_at is null)),
    constraint builds_started_has_a_claim check (
        num_nulls(claimed_by, claim_id, started_at, max_duration_seconds) in (0, 4)),
    constraint builds_final_has_an_end check (
        (status in ('pending', 'running')) = (ended_at is null)
        and (ended_at is null) = (charged_seconds is null)),
    constraint builds_unstarted_reasons_fit check (
        end_reason not in ('no_pipeline', 'repository_not_https', 'bad_ref', 'minutes_exhausted', 'queue_expired')
        or started_at is null),
    constraint builds_unstarted_is_not_success check (
        started_at is not null or status not in ('success', 'timed_out')),
    -- A build that was never started has reserved nothing, so it costs nothing.
    constraint builds_charge_within_reservation check (
        charged_seconds is null or (charged_seconds >= 0 and charged_seconds <= coalesce(max_duration_seconds, 0))),
    constraint builds_reservation_is_positive check (max_duration_seconds > 0 and timeout_seconds > 0),
    constraint builds_error_message_is_short check (octet_length(error_message) <= 1024),
    constraint builds_cancel_reason_known check (cancel_reason in ('user', 'superseded')),
    constraint builds_cancel_has_a_reason check ((cancel_requested_at is null) = (cancel_reason is null)),
    constraint builds_completed_is_final check (not completed or ended_at is not null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index builds_pending on builds (workspace_id, number) where status = 'pending';
create index builds_pending_age on builds (created_at) where status = 'pending';
create index builds_running on builds (id) where status = 'running';
create unique index builds_claim on builds (claimed_by, claim_id) where claim_id is not null;

create function refuse_change_of_final_build() returns trigger language plpgsql as $$
begin
    raise exception 'build % is %, which is final', old.id, old.status
        using errcode = 'check_violation', constraint = 'builds_final_is_final';
end $$;

create trigger builds_final_is_final before update of status, end_reason, charged_seconds, ended_at on builds
    for each row when (old.status not in ('pending', 'running')) execute function refuse_change_of_final_build();

-- What a build runs, copied at admission. Also the list of a workspace's builds: written once, so its index is too.
create table build_specs (
    build_id uuid primary key references builds (id) on delete cascade,
    workspace_id uuid not null,
    pipeline_id uuid not null,
    pipeline_slug text not null,
    repository text not null,
    git_ref text not null,
    commit_sha text,
    submodules boolean not null default false,
    steps jsonb not null,
    env jsonb not null,
    secrets text[] not null default '{}',
    clone_secret text,
    registry_secrets jsonb not null default '{}',
    requires text[] not null default '{}',
    retry_of uuid
);

create index build_specs_newest on build_specs (workspace_id, build_id);

create table idempotency_keys (
    workspace_id uuid not null references workspaces (id) on delete cascade,
    key text not null,
    body_digest bytea not null,
    build_id uuid not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (workspace_id, key),
    constraint idempotency_keys_are_short check (octet_length(key) between 1 and 255)
);

create index idempotency_keys_age on idempotency_keys (created_at);

-- Where a build's log stands. A row of its own, so that a heartbeat never waits for logs.
create table log_heads (
    build_id uuid primary key references builds (id) on delete cascade,
    next_seq bigint not null default 1,
    bytes bigint not null default 0,
    -- The first seq that was discarded at the cap; null while all are stored.
    discarded_from bigint,
    constraint log_heads_count_up check (next_seq >= 1 and bytes >= 0),
    constraint log_heads_discard_what_was_sent check (discarded_from < next_seq)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- No foreign key: its check would cost a lock on the build's row for every chunk. The head's row is the guard.
create table build_logs (
    build_id uuid not null,
    seq bigint not null,
    step text not null,
    stream text not null,
    at_ms bigint not null,
    content bytea compression lz4 not null,
    primary key (build_id, seq),
    constraint build_logs_seq_is_positive check (seq >= 1),
    constraint build_logs_stream_known check (stream in ('stdout', 'stderr', 'system'))
);

-- The ledger: one row a build, ever, in the month it ended. It outlives the build.
create table charges (
    build_id uuid primary key,
    workspace_id uuid not null,
    month date not null,
    seconds integer not null,
    charged_at timestamptz not null,
    constraint charges_are_not_negative check (seconds >= 0)
);

create table workers (
    token_id text not null references tokens (id) on delete cascade,
    host_id text not null,
    name text not null,
    version text not null,
    isolation text[] not null,
    labels text[] not null,
    seen_at timestamptz not null,
    primary key (token_id, host_id, name)
) with (fillfactor = 70);

-- One row: when the board was last swept, and until when nothing is ended after an outage.
create table sweeps (
    only_row boolean primary key default true,
    last_at timestamptz,
    not_before timestamptz,
    paused_last boolean not null default false,
    month_rolled date not null default month_of(clock_timestamp()),
    constraint sweeps_is_one_row check (only_row)
);

insert into sweeps default values;
