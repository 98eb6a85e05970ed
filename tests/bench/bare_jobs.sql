-- The least that a queue in Postgres is: what everything else is compared with.
create table jobs (
    id bigint generated always as identity primary key,
    status text not null default 'pending',
    payload text not null,
    started_at timestamptz,
    ended_at timestamptz
);
create index jobs_pending on jobs (id) where status = 'pending';
insert into jobs (payload) select repeat('x', 100) from generate_series(1, current_setting('bench.builds')::bigint);
