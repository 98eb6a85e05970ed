-- Where workers run steps in tasks of a cluster, the reaper stops the tasks of builds that it has ended. Of which of them that is done.
-- Beside `builds`, whose final rows nothing changes.
create table task_stops (
    build_id uuid primary key references builds (id) on delete cascade
);
