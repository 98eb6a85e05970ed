-- How the runner of a build's steps says that they went: once, for the worker that holds the build. Beside `builds`, whose rows heartbeats copy,
-- and in no column of it: few builds have a report. It goes with its build.
create table reports (
    build_id uuid primary key references builds (id) on delete cascade,
    report jsonb not null,
    -- Cut to what complete keeps (65 steps, names of 256 bytes, a message of 1 KiB), it is shorter however it is escaped.
    constraint reports_are_short check (octet_length(report::text) <= 131072)
);
