-- no-transaction
-- The reaper finds the builds that it has lately ended, to stop their tasks, by an index that no other build is in: what it costs is an entry for
-- each of them, and nothing that a heartbeat changes is in it. Builds are written while it is made.
create index concurrently if not exists builds_reaped on builds (ended_at) where end_reason in ('worker_lost', 'overdue');
