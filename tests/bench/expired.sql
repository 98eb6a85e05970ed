-- Makes a preview of each of `bench.builds` builds, that runs on one host and whose time was over a moment ago, with its place and its lease.
with host as (
    insert into preview_hosts (token_id, host_id, first_port, last_port, synced_at)
    select id, 'h1', 1, 65535, clock_timestamp() from tokens where kind = 'worker' limit 1
    returning token_id, host_id
), new as (
    insert into previews (workspace_id, build_id, token_id, host_id, status, waiting_for, url, port, placed, ttl_seconds, retain_failed,
        started_at, expires_at)
    select b.workspace_id, b.id, h.token_id, h.host_id, 'running', null, 'http://127.0.0.1:1/', row_number() over (order by b.id), true,
        3600, false, clock_timestamp(), clock_timestamp() - interval '1 s'
    from (select id, workspace_id from builds order by id limit current_setting('bench.builds')::integer) b cross join host h
    returning id, workspace_id, token_id, host_id, port
), leases as (
    insert into port_leases (token_id, host_id, port, preview_id) select token_id, host_id, port, id from new
)
insert into preview_places (workspace_id, taken) select workspace_id, count(*) from new group by workspace_id
on conflict (workspace_id) do update set taken = excluded.taken;
