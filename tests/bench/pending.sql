-- Adds `bench.builds` waiting builds, in turns to each workspace whose name is like `bench.workspaces`; by sets, since a
-- million one at a time would take longer than what is measured. What admission keeps is kept: sums and heads.
with queues as (
    select w.id, w.slug, p.id as pipeline, p.spec
    from workspaces w join pipelines p on p.workspace_id = w.id and p.slug = 'main'
    where w.slug like current_setting('bench.workspaces')
), new as (
    insert into builds (workspace_id, timeout_seconds, rules_version)
    select q.id, 600, current_setting('bench.rules_version')::smallint
    from generate_series(1, ceil(current_setting('bench.builds')::numeric / (select count(*) from queues))::integer) turn
    cross join queues q
    order by turn, q.slug
    returning id, workspace_id, number
), specs as (
    insert into build_specs (build_id, workspace_id, pipeline_id, pipeline_slug, repository, git_ref, steps, env)
    select n.id, n.workspace_id, q.pipeline, 'main', q.spec ->> 'repository', 'main', q.spec -> 'steps', '{}'
    from new n join queues q on q.id = n.workspace_id
), heads as (
    insert into log_heads (build_id) select id from new
)
update workspaces w
set pending = w.pending + n.pending, head_number = coalesce(w.head_number, n.head), head_seconds = 600
from (select workspace_id, count(*) as pending, min(number) as head from new group by workspace_id) n
where w.id = n.workspace_id;
