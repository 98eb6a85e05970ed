-- Adds `bench.builds` builds that succeeded a moment ago, in turns to each workspace whose name is like `bench.workspaces`,
-- with their ledger rows, and the sums that go with them.
with queues as (
    select w.id, w.slug, p.id as pipeline, p.spec
    from workspaces w join pipelines p on p.workspace_id = w.id and p.slug = 'main'
    where w.slug like current_setting('bench.workspaces')
), new as (
    insert into builds (workspace_id, timeout_seconds, rules_version, status, version, claimed_by, claim_id, started_at,
        max_duration_seconds, lease_expires_at, ended_at, completed, duration_ms, charged_seconds, last_seq, step_results)
    select q.id, 600, current_setting('bench.rules_version')::smallint, 'success', 3, t.id, gen_random_uuid(), now(),
        600, now() + interval '60 s', now(), true, 1, 1, 0, '[]'
    from generate_series(1, ceil(current_setting('bench.builds')::numeric / (select count(*) from queues))::integer) turn
    cross join queues q
    cross join (select id from tokens where kind = 'worker' limit 1) t
    returning id, workspace_id, charged_seconds
), specs as (
    insert into build_specs (build_id, workspace_id, pipeline_id, pipeline_slug, repository, git_ref, steps, env)
    select n.id, n.workspace_id, q.pipeline, 'main', q.spec ->> 'repository', 'main', (q.spec -> 'steps')::json, '{}'
    from new n join queues q on q.id = n.workspace_id
), heads as (
    insert into log_heads (build_id) select id from new
), ledger as (
    insert into charges (build_id, workspace_id, month, seconds, charged_at)
    select id, workspace_id, month_of(now()), charged_seconds, now() from new
)
update workspaces w
set charged_seconds = w.charged_seconds + n.seconds
from (select workspace_id, sum(charged_seconds) as seconds from new group by workspace_id) n
where w.id = n.workspace_id;
