-- Plans that a billing service gives (SPEC.md, Budget; docs/billing.md). They stand in `plans`, as those of the plan tables do; what
-- the asking itself has to remember stands in a table of its own, so that a service in trouble writes no row that a claim reads.

-- How the asking for a workspace's plan goes. A row is made by the first question, answer or failure.
create table billing_fetches (
    workspace_id uuid primary key references workspaces (id) on delete cascade,
    -- When the latest attempt that is known here began.
    attempted_at timestamptz not null,
    -- How many attempts in a row have failed.
    failures integer not null default 0,
    -- Nobody asks before this: the last attempt failed, or somebody asks for all at this moment.
    next_attempt_at timestamptz,
    last_error text,
    constraint billing_fetches_failures_are_not_negative check (failures >= 0),
    constraint billing_fetches_failures_back_off check (failures = 0 or next_attempt_at is not null),
    constraint billing_fetches_failures_have_an_error check ((failures > 0) = (last_error is not null)),
    constraint billing_fetches_error_known check (last_error in (
        'unreachable', 'timeout', 'broken', 'status', 'content_type', 'too_large', 'not_json', 'missing', 'invalid'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
