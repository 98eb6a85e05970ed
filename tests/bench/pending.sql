-- Adds `bench.builds` waiting builds, in turns to each workspace whose name is like `bench.workspaces`; by sets, since a
-- million one at a time would take longer than what is measured. What admission keeps is kept: sums and heads.
with queues as (
    select w.id, w.slug, p.id as pipeline, p.spec
    from workspaces w join pipelines p on p.workspace_id = w.id and p.slug = 'main'
    where w.slug like current_setting('bench.workspaces')
), new as (
    insert into builds (workspace_id, timeout_seconds, rules_version, class_id)
    select q.id, 600, current_setting('bench.rules_version')::smallint, (select class_of('{}', true, false))
    from generate_series(1, ceil(current_setting('bench.builds')::numeric / (select count(*) from queues))::integer) turn
    cross join queues q
    order by turn, q.slug
    returning id, workspace_id, class_id, number
), specs as (
    insert into build_specs (build_id, workspace_id, pipeline_id, pipeline_slug, repository, git_ref, steps, env)
    select n.id, n.workspace_id, q.pipeline, 'main', q.spec ->> 'repository', 'main', (q.spec -> 'steps')::json, '{}'
    from new n join queues q on q.id = n.workspace_id
), heads as (
    insert into log_heads (build_id) select id from new
), queued as (
    insert into queues as q (workspace_id, class_id, pending, head_number, head_seconds, open)
    select n.workspace_id, n.class_id, count(*), min(n.number), 600, bool_and(p.running_max > 0)
    from new n join plans p on p.workspace_id = n.workspace_id group by n.workspace_id, n.class_id
    on conflict (workspace_id, class_id) do update
    set pending = q.pending + excluded.pending, head_number = coalesce(q.head_number, excluded.head_number),
        head_seconds = coalesce(q.head_seconds, excluded.head_seconds), open = excluded.open
)
update workspaces w set pending = w.pending + n.pending, has_closed = w.has_closed or n.closed
from (select n.workspace_id, count(*) as pending, bool_or(p.running_max = 0) as closed
    from new n join plans p on p.workspace_id = n.workspace_id group by n.workspace_id) n
where w.id = n.workspace_id;
