-- Where workers run steps in tasks of a cluster, the reaper stops the tasks of builds that it has ended. It finds those lately ended by an index that
-- no other build is in: what it costs is an entry for each of them, and nothing that a heartbeat changes is in it. It is made in one look at `builds`,
-- while nobody writes there.
create index builds_reaped on builds (ended_at) where end_reason in ('worker_lost', 'overdue');

-- Of which of them that is done. Beside `builds`, whose final rows nothing changes.
create table task_stops (
    build_id uuid primary key references builds (id) on delete cascade
);
